use std::borrow::Cow;

use proptest::prelude::*;

use super::*;
use crate::catalog::{event_key, index_key};
use crate::index::{Index, ShapeEntry, ShardEntry, TensorEntry};
use crate::step::Mode;

/// An index file as a hook writes it: `tensors` records one after the other.
fn index(step: Step, worker: &str, tensors: usize) -> Index<'static> {
    let entry = |at: usize| TensorEntry {
        name: format!("layer_{at}/weight").into(),
        offset: 30 + 400 * at as u64,
        length: 400,
        crc: None,
    };
    let shape = |at: usize| ShapeEntry {
        name: format!("layer_{at}/weight").into(),
        original: format!("layer_{at}/weight").into(),
        shape: vec![8, 8],
    };
    Index {
        mode: Mode::Train,
        mode_step: step,
        event_file: Some(event_key(step, worker).into()),
        entries: (0..tensors).map(entry).collect(),
        shapes: (0..2).map(shape).collect(),
        shards: vec![ShardEntry { name: "layer_0/weight".into(), shard: r#"{"dim":0}"#.into() }],
    }
}

fn folder_of(files: &[(Step, &str, Index<'_>)]) -> Vec<u8> {
    let mut builder = FolderBuilder::default();
    files.iter().for_each(|(step, worker, index)| builder.add(*step, worker, index).unwrap());
    builder.finish().unwrap()
}

#[test]
fn regular_runs_take_a_fraction_of_a_byte_per_record() {
    let files: Vec<_> = (5000..6000).map(|step| (step, "worker_0", index(step, "worker_0", 200))).collect();
    let bytes = folder_of(&files);
    assert!(bytes.len() < 10_000, "{} bytes", bytes.len());
    let folder = Folder::parse(&bytes, "5.bin").unwrap();
    assert_eq!(folder.number(), 5);
    let read: Vec<_> = folder.files().unwrap().map(Result::unwrap).collect();
    assert_eq!(read.len(), 1000);
    assert!(read.iter().zip(&files).all(|(ours, (step, _, index))| ours.step == *step && ours.index == *index));
}

#[test]
fn cut_and_changed_files_are_errors() {
    let mut root = Root::default();
    let folder = RootFolder { number: 1, size: 9, hash: [1; 32], etags: [2; 32], times: None, files: Vec::new() };
    root.add(folder, [index_key(1000, "worker_0").as_str(), &index_key(1001, "worker_1")]).unwrap();
    let files = [(1000, "worker_0", index(1000, "worker_0", 3)), (1001, "worker_1", index(1001, "worker_1", 2))];
    let parse_folder: fn(&[u8]) -> Result<()> = |bytes| Folder::parse(bytes, "f.bin").map(drop);
    let parse_root: fn(&[u8]) -> Result<()> = |bytes| Root::parse(bytes, "r.bin").map(drop);
    for (bytes, parse) in [(folder_of(&files), parse_folder), (root.to_bytes().unwrap(), parse_root)] {
        parse(&bytes).unwrap();
        for length in 0..bytes.len() {
            let error = parse(&bytes[..length]).unwrap_err().to_string();
            assert!(error.contains(".bin, byte "), "{error}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            parse(&changed).unwrap_err();
        }
    }
}

#[test]
fn other_versions_and_claimed_sizes_are_errors() {
    let bytes = folder_of(&[(0, "worker_0", index(0, "worker_0", 1))]);
    let mut newer = bytes.clone();
    newer[8] = 2;
    let error = Folder::parse(&newer, "f.bin").unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    for size in [0, 1, MAX_FOLDER as u32, MAX_FOLDER as u32 + 1, u32::MAX] {
        let mut claims = bytes.clone();
        claims[16..20].copy_from_slice(&size.to_le_bytes());
        let crc = crc32c(&claims[16..]);
        claims[12..16].copy_from_slice(&crc.to_le_bytes());
        Folder::parse(&claims, "f.bin").unwrap_err();
    }
}

#[test]
fn root_of_a_long_run_is_small() {
    let mut root = Root::default();
    for number in 0..100 {
        let keys: Vec<String> = (0..1000).map(|step| index_key(number * 1000 + step, "worker_0")).collect();
        let files = Vec::new();
        let folder = RootFolder { number, size: 60_000, hash: [7; 32], etags: [8; 32], times: Some([9; 32]), files };
        root.add(folder, keys.iter().map(String::as_str)).unwrap();
    }
    let bytes = root.to_bytes().unwrap();
    assert!(bytes.len() < 4000, "{} bytes", bytes.len());
    let read = Root::parse(&bytes, "root.bin").unwrap();
    assert_eq!(read, root);
    assert_eq!(read.keys(&read.folders[99]).last().unwrap(), index_key(99_999, "worker_0"));
}

#[test]
fn keys_of_other_folders_are_refused() {
    let folder = RootFolder { number: 1, size: 0, hash: [0; 32], etags: [0; 32], times: None, files: Vec::new() };
    for key in [index_key(999, "worker_0"), index_key(1000, "worker_0").replace(".json", ".csv"), "index/x".into()] {
        Root::default().add(folder.clone(), [key.as_str()]).unwrap_err();
    }
    let mut builder = FolderBuilder::default();
    builder.add(999, "worker_0", &index(999, "worker_0", 1)).unwrap();
    builder.add(1000, "worker_0", &index(1000, "worker_0", 1)).unwrap_err();
}

fn any_index() -> impl Strategy<Value = Index<'static>> {
    let name = || "[ab:é]{0,3}".prop_map(Cow::<str>::Owned);
    let entry = (name(), 0..1u64 << 53, 0..1u64 << 53, any::<Option<u32>>());
    let shape = (name(), name(), prop::collection::vec(0..1u64 << 53, 0..4));
    let shard = (name(), "[0-9]{1,3}|null|\\[1\\]").prop_filter("JSON", |(_, text)| crate::index::is_ascii_json(text));
    let events = prop::option::of("[a-z/]{0,8}");
    (
        (1u8..5, -(1i64 << 53)..=1i64 << 53, events),
        prop::collection::vec(entry, 0..5),
        prop::collection::vec(shape, 0..5),
        prop::collection::vec(shard, 0..3),
    )
        .prop_map(|((mode, mode_step, events), entries, shapes, shards)| Index {
            mode: Mode::from_number(mode).unwrap(),
            mode_step,
            event_file: events.map(Cow::Owned).or((!entries.is_empty()).then_some("events".into())),
            entries: entries
                .into_iter()
                .map(|(name, offset, length, crc)| TensorEntry { name, offset, length, crc })
                .collect(),
            shapes: shapes.into_iter().map(|(name, original, shape)| ShapeEntry { name, original, shape }).collect(),
            shards: shards.into_iter().map(|(name, shard)| ShardEntry { name, shard: shard.into() }).collect(),
        })
}

proptest! {
    #[test]
    fn folders_round_trip(indexes in prop::collection::vec((0i64..1000, "worker_[0-9]", any_index()), 0..8)) {
        let files: Vec<_> =
            indexes.iter().map(|(step, worker, index)| (7000 + step, worker.as_str(), index.clone())).collect();
        let bytes = folder_of(&files);
        let folder = Folder::parse(&bytes, "f.bin").unwrap();
        let read: Vec<_> = folder.files().unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), files.len());
        for (ours, (step, worker, index)) in read.iter().zip(&files) {
            prop_assert_eq!((ours.step, ours.worker), (*step, *worker));
            prop_assert_eq!(&ours.index, index);
        }
    }

    #[test]
    fn changed_bodies_do_not_panic(
        indexes in prop::collection::vec(any_index(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut builder = FolderBuilder::default();
        for (step, index) in indexes.iter().enumerate() {
            builder.add(step as Step, "worker_0", index).unwrap();
        }
        let mut body = builder.body().unwrap();
        for (at, byte) in &changes {
            let at = at.index(body.len());
            body[at] = *byte;
        }
        if let Ok(folder) = Folder::of_body(body, "f.bin") {
            prop_assert!(folder.files().unwrap().all(|file| file.is_ok()));
        }
    }

    #[test]
    fn arbitrary_bodies_do_not_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(root) = Root::of_body(&body, "r.bin") {
            let again = Root::of_body(&root.body(), "r.bin");
            prop_assert_eq!(again.unwrap(), root);
        }
        let _ = Folder::of_body(body, "f.bin");
    }
}
