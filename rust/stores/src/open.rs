//! From an address and options to a store of `object_store`.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Once};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::{HttpBuilder, HttpStore};
use object_store::list::PaginatedListStore;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use reqwest::Url;

use crate::credentials::{Aws, Azure, Google, Provider};
use crate::error::{Code, Error, Result};
use crate::judge::root;
use crate::keys;
use crate::service::Connector;
use crate::settings::{Options, Settings};

/// A bucket's interfaces. Plain web servers have no lists and no uploads in parts.
#[derive(Clone)]
pub struct Bucket {
    /// Objects.
    pub objects: Arc<dyn ObjectStore>,
    /// Pages of keys.
    pub pages: Option<Arc<dyn PaginatedListStore>>,
    /// Uploads in parts.
    pub parts: Option<Arc<dyn MultipartStore>>,
    /// Whether conditional writes name the object's version, not its ETag.
    pub has_versions: bool,
    web: Option<Web>,
}

/// A web server's directory.
#[derive(Clone)]
struct Web {
    url: Url,
    client: HttpClient,
}

impl Web {
    fn open(&self) -> Result<HttpStore> {
        let builder = HttpBuilder::new().with_url(self.url.as_str()).with_retry(single());
        builder.with_http_connector(self.clone()).build().map_err(unusable)
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Web")
    }
}

impl HttpConnector for Web {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(self.client.clone())
    }
}

impl Bucket {
    fn new<S: ObjectStore + PaginatedListStore + MultipartStore>(store: S) -> Bucket {
        let store = Arc::new(store);
        Bucket {
            objects: store.clone(),
            pages: Some(store.clone()),
            parts: Some(store),
            has_versions: false,
            web: None,
        }
    }

    /// The store and the path of a key. On web servers, a key that is empty or ends with "/" is a folder's page.
    pub fn find(&self, key: &str) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let found = |path| keys::path(path).map_err(|reason| Error::new(key, Code::Other, reason));
        match &self.web {
            Some(web) if key.is_empty() || key.ends_with('/') => {
                let mut web = web.clone();
                let inner = key.trim_end_matches('/');
                let path = if inner.is_empty() { Path::ROOT } else { found(inner)? };
                if let Ok(mut segments) = web.url.path_segments_mut() {
                    segments.extend(path.parts()).push("");
                }
                Ok((Arc::new(web.open()?), Path::ROOT))
            }
            _ => Ok((self.objects.clone(), found(key)?)),
        }
    }
}

fn unusable(error: impl std::error::Error) -> Error {
    other(root(&error))
}

fn other(reason: impl Into<String>) -> Error {
    Error::new("", Code::Other, reason)
}

/// Each attempt is one request: repeats need the limiter and fresh credentials.
fn single() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

fn configured<B, K: FromStr>(builder: B, options: Options, with: impl Fn(B, K, String) -> B) -> Result<B> {
    options.into_iter().try_fold(builder, |builder, (name, value)| match name.parse() {
        Ok(key) => Ok(with(builder, key, value)),
        Err(_) => Err(other(format!("option {name:?} is unknown for this kind of store"))),
    })
}

/// Opens a bucket. Sends nothing.
pub fn open(url: &str, settings: Settings, provider: Option<Provider>, connector: Connector) -> Result<Bucket> {
    static CRYPTOGRAPHY: Once = Once::new();
    // Fails only if the process has a provider already, which is as good.
    CRYPTOGRAPHY.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let Settings { client, rest: options, .. } = settings;
    let (scheme, _) = url.split_once("://").unwrap_or_default();
    match scheme {
        "s3" | "s3a" => {
            let mut builder = AmazonS3Builder::new().with_client_options(client).with_url(url).with_retry(single());
            builder = configured(builder, options, AmazonS3Builder::with_config)?;
            // One request a key is repeated and counted like all others, and every S3 server has it.
            builder = builder.with_config(AmazonS3ConfigKey::DisableBulkDelete, "true").with_http_connector(connector);
            if let Some(provider) = provider {
                builder = builder.with_credentials(Arc::new(Aws(provider)));
            }
            builder.build().map(Bucket::new).map_err(unusable)
        }
        "gs" => {
            let builder = GoogleCloudStorageBuilder::new().with_client_options(client).with_url(url);
            let mut builder = configured(builder, options, GoogleCloudStorageBuilder::with_config)?
                .with_retry(single())
                .with_http_connector(connector);
            if let Some(provider) = provider {
                builder = builder.with_credentials(Arc::new(Google(provider)));
            }
            let store = builder.build().map_err(unusable)?;
            Ok(Bucket { has_versions: true, ..Bucket::new(store) })
        }
        "az" | "azure" | "adl" | "abfs" | "abfss" => {
            let builder = MicrosoftAzureBuilder::new().with_client_options(client).with_url(url);
            let mut builder = configured(builder, options, MicrosoftAzureBuilder::with_config)?
                .with_retry(single())
                .with_http_connector(connector);
            if let Some(provider) = provider {
                builder = builder.with_credentials(Arc::new(Azure(provider)));
            }
            builder.build().map(Bucket::new).map_err(unusable)
        }
        "http" | "https" => {
            let url = Url::parse(url).map_err(unusable)?;
            let client = configured(client, options, ClientOptions::with_config)?;
            let client = client.with_config(ClientConfigKey::AllowHttp, (scheme == "http").to_string());
            let mut web = Web { client: connector.connect(&client).map_err(unusable)?, url };
            if let Ok(mut segments) = web.url.path_segments_mut() {
                segments.pop_if_empty();
            }
            let objects = Arc::new(web.open()?);
            Ok(Bucket { objects, pages: None, parts: None, has_versions: false, web: Some(web) })
        }
        _ => Err(other(format!("{url:?} is not an address of S3, Google Cloud Storage, Azure or a web server"))),
    }
}
