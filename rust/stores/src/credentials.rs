//! Credentials that the caller provides and renews.
//!
//! Requests run on threads of the runtime, which never enter Python. A request that needs credentials waits; the thread
//! that waits for the operation calls `claim`, asks its callback, and calls `provide`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use object_store::azure::{AzureAccessKey, AzureCredential, split_sas};
use object_store::gcp::GcpCredential;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::attempt;

/// Age from which new credentials are asked for.
const DUE: Duration = Duration::from_secs(50);
/// Age from which they are not used.
const LONGEST: Duration = Duration::from_secs(60);

/// The callback's answer, by name.
pub type Values = HashMap<String, String>;

/// The callback failed or gave nothing usable.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(String);

#[derive(Debug)]
struct Obtained {
    version: u64,
    answer: Result<Arc<Values>, Unavailable>,
    at: Instant,
    rejected: bool,
}

#[derive(Debug, Default)]
struct State {
    obtained: Option<Obtained>,
    /// A thread asks the callback.
    claimed: bool,
    /// A request asked for newer credentials.
    wanted: bool,
}

/// Credentials of a store in one process.
#[derive(Debug)]
pub struct Credentials {
    state: Mutex<State>,
    /// The number of answers.
    answers: watch::Sender<u64>,
}

impl Default for Credentials {
    fn default() -> Credentials {
        Credentials { state: Mutex::default(), answers: watch::Sender::new(0) }
    }
}

impl Credentials {
    /// Whether the calling thread must ask the callback now. Of several threads, one gets `true`.
    pub fn claim(&self) -> bool {
        let mut state = self.state.lock();
        let is_due = match &state.obtained {
            None => true,
            Some(known) => known.rejected || known.at.elapsed() >= DUE || known.answer.is_err() && state.wanted,
        };
        let mine = is_due && !state.claimed;
        state.claimed |= mine;
        mine
    }

    /// Ends a claim without an answer; another thread may claim.
    pub fn release(&self) {
        self.state.lock().claimed = false;
    }

    /// Ends a claim with the callback's answer.
    pub fn provide(&self, answer: Result<Values, String>) {
        let found = |values: &Values| values.values().any(|value| !value.is_empty());
        let answer = answer
            .and_then(|values| if found(&values) { Ok(values) } else { Err("no credentials were found".to_owned()) });
        let answer = answer.map(Arc::new).map_err(Unavailable);
        self.answers.send_modify(|version| {
            *version += 1;
            let obtained = Obtained { version: *version, answer, at: Instant::now(), rejected: false };
            *self.state.lock() = State { obtained: Some(obtained), claimed: false, wanted: false };
        });
    }

    /// The server did not accept the credentials of this version.
    pub fn reject(&self, version: u64) {
        let mut state = self.state.lock();
        if let Some(known) = state.obtained.as_mut().filter(|known| known.version == version) {
            known.rejected = true;
        }
    }

    /// The credentials, after a wait if they are too old. The caller's deadline ends the wait.
    async fn get(&self) -> Result<Arc<Values>, Unavailable> {
        let mut answers = self.answers.subscribe();
        // An answer that came while this request waited is as new as it can be, even an error.
        let mut is_new = false;
        loop {
            answers.borrow_and_update();
            {
                let mut state = self.state.lock();
                match &state.obtained {
                    Some(Obtained { version, answer: Ok(values), at, rejected: false }) if at.elapsed() < LONGEST => {
                        if let Some(attempt) = attempt::current() {
                            attempt.signed(*version);
                        }
                        return Ok(values.clone());
                    }
                    Some(Obtained { answer: Err(error), .. }) if is_new => return Err(error.clone()),
                    _ => state.wanted = true,
                }
            }
            if answers.changed().await.is_err() {
                return Err(Unavailable("the store is closed".to_owned()));
            }
            is_new = true;
        }
    }
}

fn failed(error: Unavailable) -> object_store::Error {
    object_store::Error::Generic { store: "credentials", source: Box::new(error) }
}

fn required<'a>(values: &'a Values, name: &str) -> Result<&'a String, object_store::Error> {
    let missing = || failed(Unavailable(format!("the credentials have no {name:?}")));
    values.get(name).filter(|value| !value.is_empty()).ok_or_else(missing)
}

/// Gives a store its credentials.
#[derive(Debug, Clone)]
pub struct Provider(pub Arc<Credentials>);

/// Gives S3 its credentials.
#[derive(Debug)]
pub struct Aws(pub Provider);

/// Gives Google Cloud Storage its credentials.
#[derive(Debug)]
pub struct Google(pub Provider);

/// Gives Azure its credentials.
#[derive(Debug)]
pub struct Azure(pub Provider);

#[async_trait]
impl CredentialProvider for Aws {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let values = self.0.0.get().await.map_err(failed)?;
        Ok(Arc::new(AwsCredential {
            key_id: required(&values, "key_id")?.clone(),
            secret_key: required(&values, "secret")?.clone(),
            token: values.get("token").filter(|token| !token.is_empty()).cloned(),
        }))
    }
}

#[async_trait]
impl CredentialProvider for Google {
    type Credential = GcpCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<GcpCredential>> {
        let values = self.0.0.get().await.map_err(failed)?;
        Ok(Arc::new(GcpCredential { bearer: required(&values, "token")?.clone() }))
    }
}

#[async_trait]
impl CredentialProvider for Azure {
    type Credential = AzureCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AzureCredential>> {
        let values = self.0.0.get().await.map_err(failed)?;
        Ok(Arc::new(if let Some(sas) = values.get("sas") {
            AzureCredential::SASToken(split_sas(sas)?)
        } else if let Some(key) = values.get("key") {
            AzureCredential::AccessKey(AzureAccessKey::try_new(key)?)
        } else {
            AzureCredential::BearerToken(required(&values, "token")?.clone())
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Attempt;
    use crate::counters::Kind;

    fn values(id: &str) -> Values {
        HashMap::from([("key_id".to_owned(), id.to_owned()), ("secret".to_owned(), "s".to_owned())])
    }

    #[tokio::test]
    async fn one_thread_asks_and_all_requests_wait() {
        let credentials = Arc::new(Credentials::default());
        let provider = Aws(Provider(credentials.clone()));
        let waiting = provider.get_credential();
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        assert!(credentials.claim());
        assert!(!credentials.claim());
        credentials.release();
        assert!(credentials.claim());
        credentials.provide(Ok(values("first")));
        assert_eq!(waiting.await.unwrap().key_id, "first");
        assert!(!credentials.claim());
    }

    #[tokio::test]
    async fn rejected_credentials_are_renewed_once() {
        let credentials = Arc::new(Credentials::default());
        let provider = Aws(Provider(credentials.clone()));
        assert!(credentials.claim());
        credentials.provide(Ok(values("first")));
        let attempt = Attempt::new(Kind::Get);
        attempt.run(provider.get_credential()).await.unwrap();
        let version = attempt.version().unwrap();
        credentials.reject(version);
        assert!(credentials.claim());
        credentials.provide(Ok(values("second")));
        credentials.reject(version); // of the earlier ones
        assert!(!credentials.claim());
        assert_eq!(provider.get_credential().await.unwrap().key_id, "second");
    }

    #[tokio::test]
    async fn a_failing_callback_fails_the_requests_that_wait() {
        let credentials = Arc::new(Credentials::default());
        let provider = Aws(Provider(credentials.clone()));
        for _ in 0..2 {
            let waiting = provider.get_credential();
            tokio::pin!(waiting);
            assert!(futures_util::poll!(&mut waiting).is_pending());
            assert!(credentials.claim());
            credentials.provide(Err("no profile".to_owned()));
            assert!(waiting.await.unwrap_err().to_string().contains("no profile"));
        }
        credentials.provide(Ok([("token".to_owned(), "t".to_owned())].into()));
        assert!(provider.get_credential().await.unwrap_err().to_string().contains("key_id"));
    }
}
