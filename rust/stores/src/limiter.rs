//! The number of requests in flight to a bucket, which follows what the server permits.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The largest number of requests in flight.
pub const MOST: usize = 64;
/// The limit grows once in this time.
const STEP: Duration = Duration::from_secs(1);
/// A server that asks for fewer requests again after this time has a new limit.
const EPISODE: Duration = Duration::from_secs(10);
/// Growth is fast up to this share of the limit at which the server first asked for fewer requests.
const SAFE: f64 = 0.75;

#[derive(Debug)]
struct State {
    limit: f64,
    /// Growth is fast below.
    safe: f64,
    in_flight: usize,
    throttled: Option<Instant>,
    /// When the limit last changed.
    changed: Instant,
}

impl State {
    fn new(now: Instant) -> State {
        State { limit: MOST as f64, safe: MOST as f64, in_flight: 0, throttled: None, changed: now }
    }

    fn grow(&mut self, now: Instant) {
        while self.limit < MOST as f64 && now.saturating_duration_since(self.changed) >= STEP {
            let grown = if self.limit < self.safe { (self.limit * 2.0).min(self.safe) } else { self.limit + 1.0 };
            self.limit = grown.min(MOST as f64);
            self.changed += STEP;
        }
    }

    /// Halves the limit, once for all requests that were in flight together.
    fn throttle(&mut self, sent: Instant, now: Instant) {
        if self.throttled.is_some_and(|last| sent <= last) {
            return;
        }
        if self.throttled.is_none_or(|last| now.saturating_duration_since(last) > EPISODE) {
            self.safe = self.limit * SAFE;
        }
        self.limit = (self.limit / 2.0).max(1.0);
        (self.throttled, self.changed) = (Some(now), now);
    }

    fn free(&self) -> usize {
        (self.limit as usize).saturating_sub(self.in_flight)
    }
}

/// Limits the requests in flight.
#[derive(Debug)]
pub struct Limiter {
    state: Mutex<State>,
    freed: Notify,
}

/// Permission for a request, until it is dropped.
pub struct Permit<'a> {
    limiter: &'a Limiter,
    sent: Instant,
}

impl Limiter {
    /// A limiter at its largest.
    pub fn new() -> Limiter {
        Limiter { state: Mutex::new(State::new(Instant::now())), freed: Notify::new() }
    }

    /// Waits until one more request may be sent.
    pub async fn acquire(&self) -> Permit<'_> {
        loop {
            let freed = self.freed.notified();
            let now = Instant::now();
            {
                let mut state = self.state.lock();
                state.grow(now);
                if state.free() > 0 {
                    state.in_flight += 1;
                    return Permit { limiter: self, sent: now };
                }
            }
            freed.await;
        }
    }

    /// The number of requests that may be in flight.
    #[cfg(test)]
    pub fn limit(&self) -> usize {
        self.state.lock().limit as usize
    }
}

impl Permit<'_> {
    /// The server asked for fewer requests.
    pub fn throttled(&self) {
        self.limiter.state.lock().throttle(self.sent, Instant::now());
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let free = {
            let mut state = self.limiter.state.lock();
            state.in_flight -= 1;
            state.grow(Instant::now());
            state.free()
        };
        for _ in 0..free {
            self.limiter.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_once_for_requests_that_were_in_flight_together_and_recovers() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut state = State::new(start);
        for _ in 0..64 {
            state.throttle(at(0.0), at(0.1));
        }
        assert_eq!(state.limit, 32.0);
        for tick in 1..50 {
            state.throttle(at(0.1 * f64::from(tick) + 0.01), at(0.1 * f64::from(tick) + 0.1));
        }
        assert_eq!(state.limit, 1.0);
        let quiet = state.changed;
        state.grow(quiet + Duration::from_millis(999));
        assert_eq!(state.limit, 1.0);
        state.grow(quiet + Duration::from_secs(3));
        assert_eq!(state.limit, 8.0);
        state.grow(quiet + Duration::from_secs(6));
        assert_eq!(state.limit, 48.0);
        state.grow(quiet + Duration::from_secs(8));
        assert_eq!(state.limit, 50.0);
        state.grow(quiet + Duration::from_secs(1_000_000_000));
        assert_eq!(state.limit, 64.0);
    }

    #[tokio::test]
    async fn gives_as_many_permits_as_the_limit() {
        let limiter = Limiter::new();
        let mut held = Vec::new();
        for _ in 0..MOST {
            held.push(limiter.acquire().await);
        }
        assert_eq!(limiter.state.lock().free(), 0);
        held[0].throttled();
        assert_eq!(limiter.limit(), 32);
        held.truncate(40);
        let waiting = limiter.acquire();
        tokio::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        held.truncate(31);
        waiting.await;
    }
}
