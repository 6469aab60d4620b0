//! What files and tensors are called.

use crate::error::{Error, Result};
use crate::step::Step;

/// The most digits a step has in a file name: names of more digits would not sort by step.
const MAX_STEP: Step = 999_999_999_999;
/// The longest worker name, so that a file name fits every file system.
const MAX_WORKER: usize = 200;
/// What no file name can hold on one system or another.
const FORBIDDEN: [char; 9] = ['/', '\\', ':', '<', '>', '"', '|', '?', '*'];

/// A worker's name as it stands in file names: a device's `/` becomes `_` and its `:` becomes `-`.
pub fn worker_file_name(worker: &str) -> Result<String> {
    let name = worker.replace('/', "_").replace(':', "-");
    let what = if name.is_empty() {
        "is empty"
    } else if name.len() > MAX_WORKER {
        "is longer than 200 bytes"
    } else if name.contains(|c: char| c.is_control() || FORBIDDEN.contains(&c)) {
        "holds a character that file names can't hold"
    } else {
        return Ok(name);
    };
    Err(Error::Invalid(format!("the worker's name {worker:?} {what}")))
}

/// The event file of a step and a worker ([`worker_file_name`]), relative to the run.
pub fn event_key(step: Step, worker: &str) -> Result<String> {
    let step = checked(step)?;
    Ok(format!("events/{step:012}/{step:012}_{worker}.tfevents"))
}

/// The index file of a step and a worker ([`worker_file_name`]), relative to the run.
pub fn index_key(step: Step, worker: &str) -> Result<String> {
    let step = checked(step)?;
    Ok(format!("index/{:09}/{step:012}_{worker}.json", step / 1000))
}

/// The name under which a reduction of a tensor is saved: `op` as in `l2`, of the absolute values with `abs`.
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
    fn files_are_named_as_the_format_says() {
        assert_eq!(event_key(5, "worker_0").unwrap(), "events/000000000005/000000000005_worker_0.tfevents");
        assert_eq!(index_key(12_345, "worker_0").unwrap(), "index/000000012/000000012345_worker_0.json");
        assert!(event_key(MAX_STEP, "w").is_ok());
        assert!(event_key(MAX_STEP + 1, "w").is_err());
    }

    #[test]
    fn a_device_becomes_a_file_name() {
        let name = worker_file_name("/job:worker/replica:0/task:1/device:GPU:0").unwrap();
        assert_eq!(name, "_job-worker_replica-0_task-1_device-GPU-0");
    }

    #[test]
    fn hostile_worker_names_stay_in_the_run() {
        assert_eq!(worker_file_name("../../etc/passwd").unwrap(), ".._.._etc_passwd");
        for bad in ["", "a\\b", "a\0b", "a\nb", "a?", &"x".repeat(201)] {
            assert!(matches!(worker_file_name(bad), Err(Error::Invalid(_))), "{bad:?}");
        }
    }
}
