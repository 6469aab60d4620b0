//! Names of files and tensors: step and worker of an index file, tensor and kind of a stored reduction.

use std::borrow::Cow;

use crate::reduce::Op;
use crate::step::Step;

/// The directory of index files.
pub const INDEX: &str = "index";

const REDUCTIONS: &str = "smdebug/reductions/";
const ABS: &str = "abs_";

/// Parses the name of an index file (`000000000005_worker_0.json`) into step and worker. `None` for unfinished (`.tmp`) and
/// foreign files.
///
/// Directories are ignored: smdebug searches the whole path for `__` and is misled by directory names.
pub fn parse_name(file_name: &str) -> Option<(Step, &str)> {
    let stem = file_name.strip_suffix(".json").or_else(|| file_name.strip_suffix(".csv"))?;
    let digits = stem.bytes().take_while(u8::is_ascii_digit).count();
    let worker = stem[digits..].strip_prefix('_')?;
    // 18 digits fit in an i64.
    if digits == 0 || digits > 18 || worker.is_empty() {
        return None;
    }
    Some((stem[..digits].parse().ok()?, worker))
}

/// Parses the key of an index file (`index/000000000/000000000005_worker_0.json`) into step and worker.
pub fn parse_key(key: &str) -> Option<(Step, &str)> {
    let (directory, name) = key.rsplit_once('/')?;
    let inside = directory == INDEX || directory.strip_prefix(INDEX).is_some_and(|rest| rest.starts_with('/'));
    if inside { parse_name(name) } else { None }
}

/// The key that smdebug uses for the index file of a step and worker.
pub fn index_key(step: Step, worker: &str) -> String {
    format!("{INDEX}/{:09}/{step:012}_{worker}.json", step / 1000)
}

/// Whether a key equals [`index_key`], without building it.
pub(super) fn is_usual(key: &str, step: Step) -> bool {
    let usual = |digits: &str, width: usize| digits.len() == width || digits.len() > width && !digits.starts_with('0');
    let Some((folder, name)) = key.strip_prefix("index/").and_then(|rest| rest.split_once('/')) else { return false };
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    usual(&name[..digits], 12)
        && name.ends_with(".json")
        && usual(folder, 9)
        && folder.bytes().all(|b| b.is_ascii_digit())
        && folder.parse() == Ok(step / 1000)
}

/// The key that smdebug uses for the event file of a step and worker.
pub fn event_key(step: Step, worker: &str) -> String {
    format!("events/{step:012}/{step:012}_{worker}.tfevents")
}

/// Parses the name of an event file into step and worker; `None` for other names.
pub(super) fn event_file_of(key: &str) -> Option<(Step, &str)> {
    let stem = key.rsplit_once('/').map_or(key, |(_, name)| name).strip_suffix(".tfevents")?;
    let (step, worker) = stem.split_once('_')?;
    Some((Step::try_from(step.parse::<u64>().ok()?).ok()?, worker))
}

/// The display name of a worker. File names spell TensorFlow devices with `_` for `/` and `-` for `:`, which a leading `_`
/// reveals.
pub fn display_worker(raw: &str) -> Cow<'_, str> {
    if raw.starts_with('_') {
        raw.chars()
            .map(|c| {
                if c == '_' {
                    '/'
                } else if c == '-' {
                    ':'
                } else {
                    c
                }
            })
            .collect::<String>()
            .into()
    } else {
        raw.into()
    }
}

/// The kind of an index entry. A tensor's entries are stored in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(pub(super) u8);

impl Kind {
    /// The value.
    pub const VALUE: Kind = Kind(0);
    /// The shape.
    pub const SHAPE: Kind = Kind(19);
    /// The position of a worker's part of a sharded tensor.
    pub const SHARD: Kind = Kind(20);

    /// Whether the entry is the location of a record.
    pub fn is_record(self) -> bool {
        self.0 < Kind::SHAPE.0
    }

    /// One of the 18 reductions.
    pub fn reduction(op: Op, abs: bool) -> Kind {
        Kind(1 + 2 * op as u8 + u8::from(abs))
    }

    /// The reduction, if the entry is one.
    pub fn as_reduction(self) -> Option<(Op, bool)> {
        let code = self.0.checked_sub(1)?;
        Op::ALL.get(usize::from(code / 2)).map(|op| (*op, code % 2 == 1))
    }
}

/// Parses a recorded name into tensor and kind: `smdebug/reductions/abs_min/w` belongs to `w`. A malformed reduction name
/// is the name of a tensor.
pub fn parse_recorded_name(recorded: &str) -> (&str, Kind) {
    reduction_of(recorded).unwrap_or((recorded, Kind::VALUE))
}

fn reduction_of(recorded: &str) -> Option<(&str, Kind)> {
    let at = recorded.find(REDUCTIONS)?;
    let (op, tensor) = recorded[at + REDUCTIONS.len()..].split_once('/')?;
    let (op, abs) = op.strip_prefix(ABS).map_or((op, false), |op| (op, true));
    if tensor.is_empty() { None } else { Some((tensor, Kind::reduction(Op::from_name(op)?, abs))) }
}

/// The recorded name of an entry of a tensor.
pub fn recorded_name(tensor: &str, kind: Kind) -> String {
    match kind.as_reduction() {
        Some((op, abs)) => format!("{REDUCTIONS}{}{}/{tensor}", if abs { ABS } else { "" }, op.name()),
        None => tensor.to_owned(),
    }
}

/// The name without `:digits` parts, under which most hooks store a tensor's reductions.
pub fn without_output_index(name: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut rest, mut cut) = (name, false);
    while let Some(colon) = rest.find(':') {
        let (head, tail) = rest.split_at(colon);
        let digits = tail[1..].bytes().take_while(u8::is_ascii_digit).count();
        out.push_str(head);
        if digits == 0 {
            out.push(':');
        } else {
            cut = true;
        }
        rest = &tail[1 + digits..];
    }
    if cut { (out + rest).into() } else { name.into() }
}

/// Whether the tag of a record matches the index entry of a tensor.
pub fn tag_matches(tag: &str, tensor: &str, kind: Kind) -> bool {
    if kind == Kind::VALUE && tag == tensor {
        return true;
    }
    let (of, is) = parse_recorded_name(tag);
    is == kind && (of == tensor || of == without_output_index(tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn file_names_are_parsed() {
        assert_eq!(parse_name("000000000005_worker_0.json"), Some((5, "worker_0")));
        assert_eq!(parse_name("000000000005_worker_0.csv"), Some((5, "worker_0")));
        assert_eq!(parse_name("123456789012_w.json"), Some((123_456_789_012, "w")));
        let device = "000000000007__job-worker_replica-0_task-1_device-GPU-0.json";
        let (step, raw) = parse_name(device).unwrap();
        assert_eq!((step, display_worker(raw).as_ref()), (7, "/job:worker/replica:0/task:1/device:GPU:0"));
        for stranger in [
            "000000000005_worker_0.json.tmp",
            "000000000005_worker_0.tmp",
            "000000000005.json",
            "000000000005_.json",
            "_worker_0.json",
            "worker_0_collections.json",
            "9999999999999999999999_w.json",
            "",
        ] {
            assert_eq!(parse_name(stranger), None, "{stranger}");
        }
        assert_eq!(parse_key("index/000000000/000000000005_worker_0.json"), Some((5, "worker_0")));
        assert_eq!(parse_key("events/000000000/000000000005_worker_0.json"), None);
        assert_eq!(parse_key("indexes/000000000005_worker_0.json"), None);
        assert_eq!(display_worker("worker__0"), "worker__0");
    }

    #[test]
    fn reduction_names_are_parsed() {
        assert_eq!(parse_recorded_name("smdebug/reductions/abs_min/a/b:0"), ("a/b:0", Kind::reduction(Op::Min, true)));
        assert_eq!(parse_recorded_name("smdebug/reductions/l2/w"), ("w", Kind::reduction(Op::L2, false)));
        for own in
            ["w", "smdebug/reductions/min/", "smdebug/reductions/median/w", "smdebug/reductions/min", "abs_mean/x"]
        {
            assert_eq!(parse_recorded_name(own), (own, Kind::VALUE));
        }
    }

    #[test]
    fn output_indices_are_stripped() {
        assert_eq!(without_output_index("conv:0"), "conv");
        assert_eq!(without_output_index("a:0/b:12"), "a/b");
        assert_eq!(without_output_index("a:x:3:"), "a:x:");
        assert!(matches!(without_output_index("a:x"), Cow::Borrowed(_)));
        assert!(tag_matches("smdebug/reductions/min/a/b", "a:0/b:12", Kind::reduction(Op::Min, false)));
        assert!(!tag_matches("smdebug/reductions/max/a/b", "a:0/b:12", Kind::reduction(Op::Min, false)));
        assert!(!tag_matches("v", "w", Kind::VALUE));
    }

    proptest! {
        #[test]
        fn kinds_round_trip(tensor in "[^/]{1,12}", op in 0usize..9, abs: bool) {
            prop_assume!(!tensor.contains("smdebug"));
            let kind = Kind::reduction(Op::ALL[op], abs);
            prop_assert_eq!(kind.as_reduction(), Some((Op::ALL[op], abs)));
            let recorded = recorded_name(&tensor, kind);
            prop_assert_eq!(parse_recorded_name(&recorded), (tensor.as_str(), kind));
        }

        #[test]
        fn keys_round_trip(step in 0..10i64.pow(13), worker in "[a-z_0-9]{1,12}") {
            let key = index_key(step, &worker);
            prop_assert_eq!(parse_key(&key), Some((step, worker.as_str())));
            prop_assert!(is_usual(&key, step));
            prop_assert!(!is_usual(&key.replace("index/", "index/0"), step));
            prop_assert!(!is_usual(&key.replace(".json", ".csv"), step));
        }

        #[test]
        fn arbitrary_names_do_not_panic(name in ".{0,40}") {
            parse_key(&name);
            parse_name(&name);
            parse_recorded_name(&name);
            without_output_index(&name);
        }
    }
}
