//! A store as other languages use it: operations run in the background, and the caller waits for them in steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::Client;
use crate::counters::Counters;
use crate::credentials::Credentials;
use crate::error::{Code, Error, Result};
use crate::limiter::MOST;
use crate::process::{Own, PerProcess, Shared};
use crate::settings::Options;

/// A bucket at an address, in each process that uses it.
pub struct Store {
    url: String,
    options: Options,
    concurrency: usize,
    renews: bool,
    client: PerProcess<Client>,
    counters: Arc<Counters>,
    is_closed: AtomicBool,
}

impl Store {
    /// Opens a store, which checks the options and sends nothing. If `renews`, the caller provides credentials.
    pub fn new(url: &str, options: Options, concurrency: usize, renews: bool) -> Result<Store> {
        let store = Store {
            url: url.to_owned(),
            options,
            concurrency: concurrency.clamp(1, MOST),
            renews,
            client: PerProcess::new(),
            counters: Arc::default(),
            is_closed: AtomicBool::new(false),
        };
        store.client()?;
        Ok(store)
    }

    /// The client of this process.
    pub fn client(&self) -> Result<Arc<Client>> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new("", Code::Cancelled, "the store is closed"));
        }
        self.client.get_or_make(|| {
            let endpoint = |name: &&String| name.ends_with("endpoint") || name.ends_with("account_name");
            let place: Vec<&str> =
                self.options.keys().filter(endpoint).map(|name| self.options[name].as_str()).collect();
            let limiter = Shared::current()?.limiter(&format!("{} {}", self.url, place.join(" ")));
            let credentials = self.renews.then(|| Arc::new(Credentials::default()));
            Client::new(&self.url, &self.options, self.concurrency, credentials, limiter, self.counters.clone())
        })
    }

    /// Starts an operation.
    pub fn start<T, F>(&self, operation: impl FnOnce(Arc<Client>) -> F) -> Result<Running<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (client, shared) = (self.client()?, Shared::current()?);
        let work = operation(client.clone());
        let task = shared.handle().spawn(async move {
            tokio::select! {
                result = work => result,
                () = client.closed() => Err(Error::cancelled("")),
            }
        });
        Ok(Running(Own::new(task)))
    }

    /// Starts an operation with many results. At most `concurrency` of them wait for the caller.
    pub fn start_many<T, S>(&self, operation: impl FnOnce(Arc<Client>) -> S) -> Result<Arriving<T>>
    where
        T: Send + 'static,
        S: Stream<Item = T> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(self.concurrency);
        let running = self.start(|client| {
            let results = operation(client);
            async move {
                let mut results = std::pin::pin!(results);
                while let Some(result) = results.next().await {
                    if sender.send(result).await.is_err() {
                        break;
                    }
                }
                Ok(())
            }
        })?;
        Ok(Arriving { receiver: Own::new(receiver), running })
    }

    /// Lists, GETs, HEADs, PUTs, DELETEs, those of them that were repeats, and bytes received.
    pub fn requests(&self) -> [u64; 7] {
        self.counters.all()
    }

    /// The address without a name and a password, for logs.
    pub fn place(&self) -> String {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        format!("{scheme}://{}", host.rsplit('@').next().unwrap_or_default())
    }

    /// Why requests were repeated, each cause once.
    pub fn new_causes(&self) -> Vec<String> {
        self.counters.new_causes()
    }

    /// Ends all operations in this process; later ones fail.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(client) = self.client.get() {
            client.close();
        }
    }
}

fn forked() -> Error {
    Error::new("", Code::Cancelled, "the operation belongs to the process that was forked")
}

/// A running operation. Dropping it cancels it.
pub struct Running<T>(Own<JoinHandle<Result<T>>>);

impl<T> Running<T> {
    /// The result, if it is there within `time`.
    pub fn wait(&mut self, time: Duration) -> Option<Result<T>> {
        let Some(task) = self.0.get_mut() else { return Some(Err(forked())) };
        let shared = match Shared::current() {
            Ok(shared) => shared,
            Err(error) => return Some(Err(error)),
        };
        match shared.handle().block_on(async { timeout(time, task).await }).ok()? {
            Ok(result) => Some(result),
            Err(stopped) => Some(Err(Error::new("", Code::Other, format!("the operation failed: {stopped}")))),
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if let Some(task) = self.0.get_mut() {
            task.abort();
        }
    }
}

/// Results of a running operation. Dropping it cancels the operation.
pub struct Arriving<T> {
    receiver: Own<mpsc::Receiver<T>>,
    running: Running<()>,
}

impl<T> Arriving<T> {
    /// The next result, if it is there within `time`; `Some(Ok(None))` after the last one.
    pub fn wait(&mut self, time: Duration) -> Option<Result<Option<T>>> {
        let Some(receiver) = self.receiver.get_mut() else { return Some(Err(forked())) };
        if let Ok(result) = receiver.try_recv() {
            return Some(Ok(Some(result)));
        }
        let shared = match Shared::current() {
            Ok(shared) => shared,
            Err(error) => return Some(Err(error)),
        };
        match shared.handle().block_on(async { timeout(time, receiver.recv()).await }).ok()? {
            Some(result) => Some(Ok(Some(result))),
            // Without a sender, the task has ended or is about to.
            None => self.running.wait(time).map(|ended| ended.map(|()| None)),
        }
    }
}
