//! Names of files and tensors.

use crate::error::{Error, Result};
use crate::step::Step;

/// Limit on steps: with more than 12 digits, file names would not sort by step.
const MAX_STEP: Step = 999_999_999_999;
/// Limit on the length of worker names, so that file names fit every file system.
const MAX_WORKER: usize = 200;
/// Characters that some systems do not allow in file names.
const FORBIDDEN: [char; 9] = ['/', '\\', ':', '<', '>', '"', '|', '?', '*'];

/// The file-name form of a worker's name: `/` becomes `_` and `:` becomes `-`.
pub fn worker_file_name(worker: &str) -> Result<String> {
    let name = worker.replace('/', "_").replace(':', "-");
    let what = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_WORKER {
        "is longer than 200 bytes"
    } else if name.contains(|c: char| c.is_control() || FORBIDDEN.contains(&c)) {
        "contains a character that is not allowed in file names"
    } else {
        return Ok(name);
    };
    Err(Error::Invalid(format!("worker name {worker:?} {what}")))
}

/// The key of the event file of a step and worker ([`worker_file_name`]).
pub fn event_key(step: Step, worker: &str) -> Result<String> {
    let step = checked(step)?;
    Ok(format!("events/{step:012}/{step:012}_{worker}.tfevents"))
}

/// The key of the index file of a step and worker ([`worker_file_name`]).
pub fn index_key(step: Step, worker: &str) -> Result<String> {
    let step = checked(step)?;
    Ok(format!("index/{:09}/{step:012}_{worker}.json", step / 1000))
}

/// The name of a stored reduction: `op` as in `l2`, of absolute values with `abs`.
pub fn reduction_name(op: &str, abs: bool, tensor: &str) -> String {
    format!("smdebug/reductions/{}{op}/{tensor}", if abs { "abs_" } else { "" })
}

fn checked(step: Step) -> Result<Step> {
    if !(0..=MAX_STEP).contains(&step) {
        return Err(Error::Invalid(format!("invalid step {step}; the largest is {MAX_STEP} (12 digits)")));
    }
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_format() {
        assert_eq!(event_key(5, "worker_0").unwrap(), "events/000000000005/000000000005_worker_0.tfevents");
        assert_eq!(index_key(12_345, "worker_0").unwrap(), "index/000000012/000000012345_worker_0.json");
        assert!(event_key(MAX_STEP, "w").is_ok());
        assert!(event_key(MAX_STEP + 1, "w").is_err());
    }

    #[test]
    fn device_names_are_converted() {
        let name = worker_file_name("/job:worker/replica:0/task:1/device:GPU:0").unwrap();
        assert_eq!(name, "_job-worker_replica-0_task-1_device-GPU-0");
    }

    #[test]
    fn hostile_worker_names_are_rejected() {
        assert_eq!(worker_file_name("../../etc/passwd").unwrap(), ".._.._etc_passwd");
        for bad in ["", "a\\b", "a\0b", "a\nb", "a?", &"x".repeat(201)] {
            assert!(matches!(worker_file_name(bad), Err(Error::Invalid(_))), "{bad:?}");
        }
    }
}
