//! What became of one request: noted where the answer arrives, read where the next attempt is decided.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::counters::Kind;

/// The parts of an answer that decide what follows.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The server's name of the error.
    pub code: String,
    /// The server's explanation.
    pub message: String,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
    /// The region of the bucket, if the server named it.
    pub region: String,
}

/// One attempt of an operation.
#[derive(Debug)]
pub struct Attempt {
    /// What it does.
    pub kind: Kind,
    answer: Mutex<Answer>,
    /// The version of the credentials.
    version: Mutex<Option<u64>>,
}

tokio::task_local! {
    static CURRENT: Arc<Attempt>;
}

impl Attempt {
    /// An attempt without an answer.
    pub fn new(kind: Kind) -> Arc<Attempt> {
        Arc::new(Attempt { kind, answer: Mutex::default(), version: Mutex::default() })
    }

    /// Runs `work`, in which `current` returns this attempt.
    pub async fn run<T>(self: &Arc<Attempt>, work: impl Future<Output = T>) -> T {
        CURRENT.scope(self.clone(), work).await
    }

    /// The answer so far.
    pub fn answer(&self) -> Answer {
        self.answer.lock().clone()
    }

    /// The version of the credentials that it used, if the caller provides them.
    pub fn version(&self) -> Option<u64> {
        *self.version.lock()
    }

    /// Notes the version of the credentials.
    pub fn signed(&self, version: u64) {
        *self.version.lock() = Some(version);
    }

    /// Notes the answer.
    pub fn answered(&self, answer: Answer) {
        *self.answer.lock() = answer;
    }
}

/// The attempt that the calling task makes.
pub fn current() -> Option<Arc<Attempt>> {
    CURRENT.try_with(Arc::clone).ok()
}
