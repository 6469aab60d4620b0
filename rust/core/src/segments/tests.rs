use std::collections::HashMap;
use std::fs;
use std::path::Path;

use parking_lot::RwLock;

use super::{Name, SEGMENTS, load, newest, parse_key};
use crate::catalog::Catalog;
use crate::load::{Listed, list};
use crate::source::Local;
use crate::step::{Mode, Step};
use crate::tensor::DType;
use crate::writer::StepWriter;
use crate::writer::segment::{Cut, SegmentWriter, cut_steps, rewrite, show_steps};

fn step(root: &Path, step: Step, names: &[&str]) -> StepWriter {
    let mut writer = StepWriter::new(root, step, "worker_0", Mode::Train, step, false).unwrap().in_memory();
    for name in names {
        writer.tensor(name, DType::F32, &[1], &(step as f32).to_le_bytes()).unwrap();
    }
    writer
}

fn reading() -> RwLock<Catalog> {
    RwLock::new(Catalog::new(0..Step::MAX))
}

/// The steps with a tensor, read from the beginning.
fn steps_of(root: &Path, name: &str) -> Vec<Step> {
    let catalog = reading();
    list(&catalog, &mut Listed::default(), &Local::new(root)).unwrap();
    crate::load::load(&catalog, &Local::new(root), None, None).unwrap();
    assert!(catalog.read().problems().is_empty(), "{:?}", catalog.read().problems());
    let catalog = catalog.read();
    catalog.steps(None).into_iter().filter(|step| find(&catalog, name, *step).is_some()).collect()
}

fn find(catalog: &Catalog, name: &str, step: Step) -> Option<(String, u64)> {
    let found = catalog.find(name, step, None, crate::catalog::Kind::VALUE)?;
    Some((catalog.event_key(found.file), found.offset))
}

#[test]
fn names_round_trip() {
    for (name, text) in
        [(Name { number: 3, version: 0 }, "000003.index"), (Name { number: 3, version: 12 }, "000003-12.index")]
    {
        assert_eq!(Name::parse(text), Some(name));
        assert_eq!(parse_key(&name.index_key("w")), Some(("w", name)));
    }
    for stranger in ["3.index", "000003-0.index", "000003.index.tmp", "000003.tfevents", ".index", "-1.index"] {
        assert_eq!(Name::parse(stranger), None, "{stranger}");
    }
    assert_eq!(parse_key("segments//000003.index"), None);
    let keys = ["segments/b/000000.index", "segments/a/000001.index", "segments/a/000001-1.index", "segments/a/x"];
    assert_eq!(newest(keys), ["segments/b/000000.index", "segments/a/000001-1.index"]);
}

#[test]
fn appended_steps_are_followed() {
    let root = tempfile::tempdir().unwrap();
    let run = Local::new(root.path());
    let (catalog, mut listed) = (reading(), Listed::default());
    let mut segments = SegmentWriter::new(root.path(), "worker_0").unwrap();
    for number in 0..3 {
        segments.append(&mut step(root.path(), number, &["a", "b"])).unwrap();
        assert_eq!(list(&catalog, &mut listed, &run).unwrap(), 1);
    }
    assert_eq!(list(&catalog, &mut listed, &run).unwrap(), 0);
    assert_eq!(catalog.read().steps(Some(Mode::Train)), [0, 1, 2]);
    let again = find(&catalog.read(), "b", 2).unwrap();
    assert_eq!(again.0, "segments/worker_0/000000.tfevents");
    // More tensors follow: the step is appended again.
    let mut open = step(root.path(), 3, &["a"]);
    let (_, bytes) = segments.append(&mut open).unwrap();
    assert!(bytes > 0 && segments.append(&mut open).unwrap().1 == 0);
    open.tensor("b", DType::F32, &[1], &[0; 4]).unwrap();
    segments.append(&mut open).unwrap();
    list(&catalog, &mut listed, &run).unwrap();
    assert!(find(&catalog.read(), "b", 3).is_some());
    assert_eq!(steps_of(root.path(), "b"), [0, 1, 2, 3]);
    // A separate index file counts.
    let mut own = step(root.path(), 1, &["c"]);
    own.publish().unwrap();
    list(&catalog, &mut listed, &run).unwrap();
    crate::load::load(&catalog, &run, None, None).unwrap();
    assert!(find(&catalog.read(), "c", 1).is_some() && find(&catalog.read(), "a", 1).is_none());
    assert_eq!(steps_of(root.path(), "a"), [0, 2, 3]);
}

#[test]
fn torn_and_foreign_lines_are_left_out() {
    let root = tempfile::tempdir().unwrap();
    let mut segments = SegmentWriter::new(root.path(), "worker_0").unwrap();
    for number in 0..3 {
        segments.append(&mut step(root.path(), number, &["a"])).unwrap();
    }
    let path = root.path().join("segments/worker_0/000000.index");
    let whole = fs::read(&path).unwrap();
    let lines: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    for end in 0..whole.len() {
        let catalog = reading();
        let (new, size) = load(&catalog, "segments/worker_0/000000.index", &whole[..end]).unwrap();
        let complete = lines.iter().filter(|line| **line <= end).count();
        assert_eq!((new, size), (complete, if complete == 0 { 0 } else { lines[complete - 1] }));
    }
    let catalog = reading();
    let strange = b"[]\n{\"step\":\"x\"}\n\n{\"step\":7}\nnot JSON\n";
    load(&catalog, "segments/worker_0/000000.index", strange).unwrap();
    assert_eq!(catalog.read().problems().len(), 1);
    assert!(load(&catalog, "index/000000000/000000000001_w.json", strange).is_err());
}

#[test]
fn deleted_tensors_are_gone_and_others_stay() {
    let root = tempfile::tempdir().unwrap();
    let mut segments = SegmentWriter::new(root.path(), "worker_0").unwrap();
    for number in 0..6 {
        segments.append(&mut step(root.path(), number, &["small", "large"])).unwrap();
    }
    segments.end();
    show_steps(root.path(), "worker_0", &[1, 2, 3]).unwrap();
    let cuts = HashMap::from([(1, Cut::From("large".into())), (2, Cut::All), (5, Cut::From("small".into()))]);
    let (key, size) = rewrite(root.path(), &[("segments/worker_0/000000.index", &cuts)]).unwrap().unwrap();
    let on_disk = |name: &str| fs::metadata(root.path().join("segments/worker_0").join(name)).unwrap().len();
    assert_eq!(key, "segments/worker_0/000000-1.index");
    assert_eq!(size, on_disk("000000-1.index") + on_disk("000000-1.tfevents"));
    assert_eq!(steps_of(root.path(), "small"), [0, 1, 3, 4]);
    assert_eq!(steps_of(root.path(), "large"), [0, 3, 4]);
    let files = |folder: &str| fs::read_dir(root.path().join(folder)).unwrap().count();
    assert_eq!((files("segments/worker_0"), files("index/000000000")), (2, 2));
    cut_steps(root.path(), "worker_0", 3).unwrap();
    assert_eq!(steps_of(root.path(), "large"), [0]);
    segments.append(&mut step(root.path(), 3, &["large"])).unwrap();
    assert_eq!(steps_of(root.path(), "large"), [0, 3]);
    cut_steps(root.path(), "worker_0", 0).unwrap();
    assert_eq!((steps_of(root.path(), "small"), files(&format!("{SEGMENTS}/worker_0"))), (vec![], 0));
}

#[test]
fn segments_are_joined_and_a_reader_follows() {
    let root = tempfile::tempdir().unwrap();
    let run = Local::new(root.path());
    let (catalog, mut listed) = (reading(), Listed::default());
    let mut segments = SegmentWriter::new(root.path(), "worker_0").unwrap();
    let mut keys = Vec::new();
    for number in 0..9 {
        keys.push(segments.append(&mut step(root.path(), number, &["small", "large"])).unwrap().0);
        if number % 3 == 2 {
            segments.end();
        }
    }
    list(&catalog, &mut listed, &run).unwrap();
    show_steps(root.path(), "worker_0", &[1, 4, 8]).unwrap();
    let cuts = [HashMap::from([(1, Cut::From("large".into()))]), HashMap::new(), HashMap::from([(7, Cut::All)])];
    let joined: Vec<_> = keys.iter().map(String::as_str).step_by(3).zip(&cuts).collect();
    assert_eq!(rewrite(root.path(), &joined).unwrap().unwrap().0, "segments/worker_0/000002-1.index");
    let files = |folder: &str| fs::read_dir(root.path().join(folder)).unwrap().count();
    assert_eq!((files("segments/worker_0"), files("index/000000000")), (2, 3));
    assert_eq!(steps_of(root.path(), "small"), [0, 1, 2, 3, 4, 5, 6, 8]);
    assert_eq!(steps_of(root.path(), "large"), [0, 2, 3, 4, 5, 6, 8]);
    // A reader that knew the old ones, and one that saw one of them beside the new one.
    list(&catalog, &mut listed, &run).unwrap();
    let place = find(&catalog.read(), "large", 3).unwrap().0;
    assert_eq!(place, "segments/worker_0/000002-1.tfevents");
    let (old, new) = (keys[3].as_str(), "segments/worker_0/000002-1.index");
    assert_eq!(newest([new, old, "segments/worker_0/000002.index"]), [old, new]);
    let another = HashMap::new();
    let foreign = [("segments/worker_1/000000.index", &another), (new, &another)];
    assert!(rewrite(root.path(), &foreign).is_err() && rewrite(root.path(), &[]).unwrap().is_none());
}

#[test]
fn large_steps_have_their_own_files() {
    let root = tempfile::tempdir().unwrap();
    let mut segments = SegmentWriter::new(root.path(), "worker_0").unwrap();
    let mut large = step(root.path(), 0, &["a"]);
    assert!(large.is_in_memory());
    large.tensor("b", DType::U8, &[9 << 20], &vec![1; 9 << 20]).unwrap();
    assert!(!large.is_in_memory() && segments.append(&mut large).is_err());
    large.finish().unwrap();
    let mut small = step(root.path(), 1, &["a"]);
    assert_eq!(small.first(), Some("a"));
    small.publish().unwrap();
    assert!(segments.append(&mut small).is_err());
    small.finish().unwrap();
    assert_eq!(steps_of(root.path(), "a"), [0, 1]);
}
