//! What the names of files and tensors say: step and worker of an index file, tensor and kind of a stored reduction.

use std::borrow::Cow;

use crate::reduce::Op;
use crate::step::Step;

/// The directory of index files.
pub const INDEX: &str = "index";

const REDUCTIONS: &str = "smdebug/reductions/";
const ABS: &str = "abs_";

/// Step and worker, from an index file's own name (`000000000005_worker_0.json`). Nothing for files that are no index files:
/// those still being written (`.tmp`) and strangers.
///
/// Directories play no part: smdebug looks for `__` in the whole path and is led astray by a directory's name.
pub fn parse_name(file_name: &str) -> Option<(Step, &str)> {
    let stem = file_name.strip_suffix(".json").or_else(|| file_name.strip_suffix(".csv"))?;
    let digits = stem.bytes().take_while(u8::is_ascii_digit).count();
    let worker = stem[digits..].strip_prefix('_')?;
    // Steps are Python ints in JSON and i64 in protobuf: 18 digits fit everywhere.
    if digits == 0 || digits > 18 || worker.is_empty() {
        return None;
    }
    Some((stem[..digits].parse().ok()?, worker))
}

/// Step and worker of a key relative to the run (`index/000000000/000000000005_worker_0.json`).
pub fn parse_key(key: &str) -> Option<(Step, &str)> {
    let (directory, name) = key.rsplit_once('/')?;
    let inside = directory == INDEX || directory.strip_prefix(INDEX).is_some_and(|rest| rest.starts_with('/'));
    if inside { parse_name(name) } else { None }
}

/// Where smdebug puts the index file of a step and worker.
pub fn index_key(step: Step, worker: &str) -> String {
    format!("{INDEX}/{:09}/{step:012}_{worker}.json", step / 1000)
}

/// Whether the index file of a step is where smdebug puts it: [`index_key`] without the writing.
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

/// Where smdebug puts the event file of a step and worker.
pub fn event_key(step: Step, worker: &str) -> String {
    format!("events/{step:012}/{step:012}_{worker}.tfevents")
}

/// Step and worker that the name of an event file speaks of; nothing where it is a name of another kind.
pub(super) fn event_file_of(key: &str) -> Option<(Step, &str)> {
    let stem = key.rsplit_once('/').map_or(key, |(_, name)| name).strip_suffix(".tfevents")?;
    let (step, worker) = stem.split_once('_')?;
    Some((Step::try_from(step.parse::<u64>().ok()?).ok()?, worker))
}

/// A worker as smdebug shows it: file names spell TensorFlow's devices with `_` for `/` and `-` for `:`, and a leading `_`
/// gives them away.
pub fn shown_worker(raw: &str) -> Cow<'_, str> {
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

/// What an entry of an index file is to its tensor. In this order a tensor's entries lie beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(pub(super) u8);

impl Kind {
    /// The tensor itself.
    pub const VALUE: Kind = Kind(0);
    /// Only its shape.
    pub const SHAPE: Kind = Kind(19);

    /// One of its 18 reductions.
    pub fn reduction(op: Op, abs: bool) -> Kind {
        Kind(1 + 2 * op as u8 + u8::from(abs))
    }

    /// Which reduction, if it is one.
    pub fn as_reduction(self) -> Option<(Op, bool)> {
        let code = self.0.checked_sub(1)?;
        Op::ALL.get(usize::from(code / 2)).map(|op| (*op, code % 2 == 1))
    }
}

/// The tensor and kind that a recorded name speaks of: `smdebug/reductions/abs_min/w` is of `w`. A name that merely looks
/// like a reduction (of an unknown kind, or of nothing) is a tensor's own.
pub fn meaning(recorded: &str) -> (&str, Kind) {
    reduction_of(recorded).unwrap_or((recorded, Kind::VALUE))
}

fn reduction_of(recorded: &str) -> Option<(&str, Kind)> {
    let at = recorded.find(REDUCTIONS)?;
    let (op, tensor) = recorded[at + REDUCTIONS.len()..].split_once('/')?;
    let (op, abs) = op.strip_prefix(ABS).map_or((op, false), |op| (op, true));
    if tensor.is_empty() { None } else { Some((tensor, Kind::reduction(Op::from_name(op)?, abs))) }
}

/// The name under which an entry of a tensor is recorded.
pub fn recorded_name(tensor: &str, kind: Kind) -> String {
    match kind.as_reduction() {
        Some((op, abs)) => format!("{REDUCTIONS}{}{}/{tensor}", if abs { ABS } else { "" }, op.name()),
        None => tensor.to_owned(),
    }
}

/// The name without every `:digits`, as most frameworks' hooks file a tensor's reductions.
pub fn without_digits(name: &str) -> Cow<'_, str> {
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

/// Whether a record tagged `tag` is the one that an index file promised as this tensor's.
pub fn tag_fits(tag: &str, tensor: &str, kind: Kind) -> bool {
    if kind == Kind::VALUE && tag == tensor {
        return true;
    }
    let (of, is) = meaning(tag);
    is == kind && (of == tensor || of == without_digits(tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn file_names_say_step_and_worker() {
        assert_eq!(parse_name("000000000005_worker_0.json"), Some((5, "worker_0")));
        assert_eq!(parse_name("000000000005_worker_0.csv"), Some((5, "worker_0")));
        assert_eq!(parse_name("123456789012_w.json"), Some((123_456_789_012, "w")));
        let device = "000000000007__job-worker_replica-0_task-1_device-GPU-0.json";
        let (step, raw) = parse_name(device).unwrap();
        assert_eq!((step, shown_worker(raw).as_ref()), (7, "/job:worker/replica:0/task:1/device:GPU:0"));
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
        assert_eq!(shown_worker("worker__0"), "worker__0");
    }

    #[test]
    fn names_of_reductions_say_of_what() {
        assert_eq!(meaning("smdebug/reductions/abs_min/a/b:0"), ("a/b:0", Kind::reduction(Op::Min, true)));
        assert_eq!(meaning("smdebug/reductions/l2/w"), ("w", Kind::reduction(Op::L2, false)));
        for own in
            ["w", "smdebug/reductions/min/", "smdebug/reductions/median/w", "smdebug/reductions/min", "abs_mean/x"]
        {
            assert_eq!(meaning(own), (own, Kind::VALUE));
        }
    }

    #[test]
    fn digits_after_colons_go() {
        assert_eq!(without_digits("conv:0"), "conv");
        assert_eq!(without_digits("a:0/b:12"), "a/b");
        assert_eq!(without_digits("a:x:3:"), "a:x:");
        assert!(matches!(without_digits("a:x"), Cow::Borrowed(_)));
        assert!(tag_fits("smdebug/reductions/min/a/b", "a:0/b:12", Kind::reduction(Op::Min, false)));
        assert!(!tag_fits("smdebug/reductions/max/a/b", "a:0/b:12", Kind::reduction(Op::Min, false)));
        assert!(!tag_fits("v", "w", Kind::VALUE));
    }

    proptest! {
        #[test]
        fn every_kind_survives_its_name(tensor in "[^/]{1,12}", op in 0usize..9, abs: bool) {
            prop_assume!(!tensor.contains("smdebug"));
            let kind = Kind::reduction(Op::ALL[op], abs);
            prop_assert_eq!(kind.as_reduction(), Some((Op::ALL[op], abs)));
            let recorded = recorded_name(&tensor, kind);
            prop_assert_eq!(meaning(&recorded), (tensor.as_str(), kind));
        }

        #[test]
        fn keys_survive(step in 0..10i64.pow(13), worker in "[a-z_0-9]{1,12}") {
            let key = index_key(step, &worker);
            prop_assert_eq!(parse_key(&key), Some((step, worker.as_str())));
            prop_assert!(is_usual(&key, step));
            prop_assert!(!is_usual(&key.replace("index/", "index/0"), step));
            prop_assert!(!is_usual(&key.replace(".json", ".csv"), step));
        }

        #[test]
        fn no_name_panics(name in ".{0,40}") {
            parse_key(&name);
            parse_name(&name);
            meaning(&name);
            without_digits(&name);
        }
    }
}
