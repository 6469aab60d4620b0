//! Fuzzes the compacted index: accepted content survives a round trip, everything else is an error, in bounded memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::error::Error;
use smdwidgets_core::index::{Index, ShapeEntry, ShardEntry, TensorEntry};
use smdwidgets_core::manifest::{Folder, FolderBuilder, Root};
use smdwidgets_core::step::{Mode, Step};

/// Bytes of a body; or index files, whose body is changed at some places.
type Given<'a> = (&'a [u8], Vec<(u16, u8, Vec<(u8, u16, u16)>)>, Vec<(u16, u8)>);

fuzz_target!(|given: Given<'_>| {
    let (bytes, files, changes) = given;
    // Whole files, of which few pass the checksum.
    expected(Folder::parse(bytes, "fuzzed.bin").map(drop));
    expected(Root::parse(bytes, "fuzzed.bin").map(drop));
    if let Some(root) = expected(Root::of_body(bytes, "fuzzed.bin")) {
        assert_eq!(Root::of_body(&root.body(), "again.bin").expect("an encoded root parses"), root);
        root.folders.iter().for_each(|folder| assert_eq!(root.keys(folder).count(), folder.files.len()));
    }
    check(bytes.to_vec());

    let mut builder = FolderBuilder::default();
    for (step, kind, entries) in files.iter().take(8) {
        builder.add(Step::from(step % 1000), "worker_0", &index(*kind, entries)).expect("it is of this folder");
    }
    let mut body = builder.body().expect("it is small");
    let is_whole = changes.is_empty();
    let size = body.len();
    changes.iter().for_each(|(at, byte)| body[usize::from(*at) % size] = *byte);
    let folder = check(body);
    if is_whole {
        let folder = folder.expect("an encoded folder parses");
        let read: Vec<_> = folder.files().expect("it was checked").map(|file| file.expect("it was checked")).collect();
        assert_eq!(read.len(), files.len().min(8));
        for (ours, (step, kind, entries)) in read.iter().zip(&files) {
            assert_eq!((ours.step, ours.worker), (Step::from(step % 1000), "worker_0"));
            assert_eq!(ours.index, index(*kind, entries));
        }
    }
});

fn expected<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(
            Error::Truncated { location, .. } | Error::Corrupt { location, .. } | Error::Unsupported { location, .. },
        ) => {
            assert_eq!(location.file, "fuzzed.bin");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Parses a body. What is accepted can be encoded and read again.
fn check(body: Vec<u8>) -> Option<Folder> {
    let folder = expected(Folder::of_body(body, "fuzzed.bin"))?;
    let mut builder = FolderBuilder::default();
    let read: Vec<_> = folder.files().expect("it was checked").map(|file| file.expect("it was checked")).collect();
    read.iter().for_each(|file| builder.add(file.step, file.worker, &file.index).expect("it is of this folder"));
    let again = Folder::of_body(builder.body().expect("it is small"), "again.bin").expect("an encoded folder parses");
    let files = again.files().expect("it was checked").map(|file| file.expect("it was checked"));
    assert!(files.eq(read));
    Some(folder)
}

fn index(kind: u8, entries: &[(u8, u16, u16)]) -> Index<'static> {
    let name = |name: u8| format!("t{}", name % 16).into();
    let of = |part: u8| entries.iter().filter(move |(name, _, _)| name % 8 == part || part == 0 && name % 8 > 2);
    let crc = |length: u16| length.is_multiple_of(3).then_some(u32::from(length));
    let (offset, length) = (|offset: u16| u64::from(offset), |length: u16| u64::from(length));
    Index {
        mode: Mode::from_number(kind % 4 + 1).expect("a mode"),
        mode_step: Step::from(kind) - 100,
        event_file: Some(format!("events/{}", kind % 3).into()),
        entries: of(0)
            .map(|(n, at, size)| TensorEntry {
                name: name(*n),
                offset: offset(*at),
                length: length(*size),
                crc: crc(*size),
            })
            .collect(),
        shapes: of(1)
            .map(|(n, at, size)| ShapeEntry {
                name: name(*n),
                original: name(n / 16),
                shape: vec![u64::from(*at); usize::from(size % 5)],
            })
            .collect(),
        shards: of(2).map(|(n, at, _)| ShardEntry { name: name(*n), shard: format!("[{at}]").into() }).collect(),
    }
}
