//! Options of a store that are ours, separated from those of `object_store`.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use object_store::{Certificate, ClientOptions};

use crate::error::{Code, Error, Result};

/// Options by name.
pub type Options = BTreeMap<String, String>;

/// How requests are sent.
#[derive(Debug)]
pub struct Settings {
    /// The longest time of an operation, with all repeats.
    pub timeout: Duration,
    /// The longest wait for bytes.
    pub silence: Duration,
    /// The options of the HTTP client.
    pub client: ClientOptions,
    /// The other options, for `object_store`.
    pub rest: Options,
}

fn wrong(name: &str, why: impl std::fmt::Display) -> Error {
    Error::new("", Code::Other, format!("option {name:?}: {why}"))
}

/// Takes a time out of the options: "12", "0.5 s" or "12 seconds".
fn take_time(options: &mut Options, name: &str, default: f64) -> Result<Duration> {
    let Some(text) = options.remove(name) else { return Ok(Duration::from_secs_f64(default)) };
    let number = text.trim().trim_end_matches("seconds").trim_end_matches('s').trim();
    let seconds = number.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| wrong(name, format!("{text:?} is not a number of seconds above zero")))
}

fn take_file(options: &mut Options, name: &str) -> Result<Option<String>> {
    let Some(path) = options.remove(name) else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(content) => Ok(Some(content)),
        Err(error) => Err(wrong(name, format!("{path}: {error}"))),
    }
}

impl Settings {
    /// Reads the options.
    pub fn new(options: &Options) -> Result<Settings> {
        let mut rest = options.clone();
        let timeout = take_time(&mut rest, "timeout", 120.0)?;
        let silence = take_time(&mut rest, "read_timeout", 10.0)?;
        let connect = take_time(&mut rest, "connect_timeout", 5.0)?;
        // The time of an operation and of each wait is bounded here; a large body may take long.
        let mut client = ClientOptions::new()
            .with_timeout_disabled()
            .with_connect_timeout(connect)
            .with_user_agent(HeaderValue::from_static(concat!("smdwidgets/", env!("CARGO_PKG_VERSION"))));
        if let Some(bundle) = take_file(&mut rest, "ca_file")? {
            let certificates =
                Certificate::from_pem_bundle(bundle.as_bytes()).map_err(|error| wrong("ca_file", error))?;
            client = certificates.into_iter().fold(client, ClientOptions::with_root_certificate);
        }
        if let Some(bundle) = take_file(&mut rest, "proxy_ca_file")? {
            client = client.with_proxy_ca_certificate(bundle);
        }
        let mut headers = HeaderMap::new();
        let mut problem = None;
        rest.retain(|name, value| {
            let Some(header) = name.strip_prefix("header:") else { return true };
            match (HeaderName::try_from(header), HeaderValue::try_from(value.as_str())) {
                (Ok(header), Ok(value)) => drop(headers.insert(header, value)),
                _ => problem = Some(wrong(name, "this is not an HTTP header")),
            }
            false
        });
        if let Some(problem) = problem {
            return Err(problem);
        }
        if !headers.is_empty() {
            client = client.with_default_headers(headers);
        }
        Ok(Settings { timeout, silence, client, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(options: &[(&str, &str)]) -> Result<Settings> {
        Settings::new(&options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    #[test]
    fn own_options_are_taken_out() {
        let read = settings(&[("timeout", "1.5"), ("read_timeout", "2 s"), ("header:x-a", "b"), ("aws_region", "r")]);
        let read = read.unwrap();
        assert_eq!((read.timeout, read.silence), (Duration::from_millis(1500), Duration::from_secs(2)));
        assert_eq!(read.rest.into_keys().collect::<Vec<_>>(), ["aws_region"]);
    }

    #[test]
    fn unusable_values_are_named() {
        for (name, value) in
            [("timeout", "soon"), ("timeout", "-1"), ("timeout", "nan"), ("ca_file", "/no/file"), ("header:a b", "c")]
        {
            assert!(settings(&[(name, value)]).unwrap_err().message.contains(name));
        }
    }
}
