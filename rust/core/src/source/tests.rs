use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::error::Error;

fn write(root: &Path, key: &str, bytes: &[u8]) {
    let path = root.join(key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // As writers of the format do: a temporary file, then a rename.
    let unfinished = path.with_extension("tmp");
    fs::write(&unfinished, bytes).unwrap();
    fs::rename(unfinished, path).unwrap();
}

fn run() -> (TempDir, Local, Memory) {
    let directory = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    for (key, bytes) in [("events/a", &b"0123456789"[..]), ("index/x/b", b"b"), ("index/c", b"")] {
        write(directory.path(), key, bytes);
        memory.insert(key, bytes);
    }
    let local = Local::new(directory.path());
    (directory, local, memory)
}

#[test]
fn local_and_memory_sources_agree() {
    let (_directory, local, memory) = run();
    for source in [&local as &dyn Source, &memory] {
        let blob = source.open("events/a").unwrap();
        let mut buffer = Vec::new();
        for (offset, length, found) in
            [(2, 3, "234"), (8, 5, "89"), (10, 1, ""), (u64::MAX, 1, ""), (0, u64::MAX, "0123456789")]
        {
            let count = blob.read_at(offset, length, &mut buffer).unwrap();
            assert_eq!(&buffer[..count], found.as_bytes());
        }
        // A wrong length does not allocate beyond the file's size.
        assert!(buffer.capacity() < 100);
        assert!(matches!(source.open("events/b"), Err(Error::Io { .. })));
    }
}

#[test]
fn keys_outside_the_run_are_rejected() {
    let (_directory, local, memory) = run();
    for key in [
        "",
        "..",
        "../x",
        "events/../../x",
        "events/..",
        "/etc/passwd",
        "\\etc",
        "C:/x",
        "c:x",
        "a\\..\\..\\b",
        "e\0",
        "//x/y",
    ] {
        for source in [&local as &dyn Source, &memory] {
            match source.open(key) {
                Err(Error::OutsideRun { name, .. }) => assert_eq!(name, key),
                Err(other) => panic!("{key:?}: {other}"),
                Ok(_) => panic!("{key:?} was opened"),
            }
        }
    }
    assert!(local.open("events/./a").is_ok() && local.open("events//a").is_ok());
}

fn content(local: &Local, key: &str) -> Vec<u8> {
    local.read_whole(local.open_file(key).unwrap(), key).unwrap()
}

#[cfg(unix)]
#[test]
fn links_to_the_outside_and_pipes_are_rejected() {
    use std::os::unix::fs::symlink;
    let (directory, local, _) = run();
    let elsewhere = tempfile::tempdir().unwrap();
    write(elsewhere.path(), "secret", b"secret");
    let root = directory.path();
    symlink(elsewhere.path().join("secret"), root.join("events/out")).unwrap();
    symlink(elsewhere.path(), root.join("away")).unwrap();
    symlink("../../../../../../etc/passwd", root.join("events/up")).unwrap();
    symlink("a", root.join("events/inside")).unwrap();
    symlink(root.join("events/a"), root.join("events/absolute_inside")).unwrap();
    for key in ["events/out", "away/secret", "events/up"] {
        assert!(matches!(local.open_file(key), Err(Error::OutsideRun { .. })), "{key}: {:?}", local.open_file(key));
    }
    assert_eq!(content(&local, "events/inside"), b"0123456789");
    assert_eq!(content(&local, "events/absolute_inside"), b"0123456789");
    assert!(matches!(local.open_file("events"), Err(Error::OutsideRun { .. } | Error::Io { .. })));
    let pipe = root.join("events/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    if made.is_ok_and(|status| status.success()) {
        assert!(matches!(local.open_file("events/pipe"), Err(Error::OutsideRun { .. })));
    }
}

#[test]
fn truncated_open_file_reads_to_its_new_end() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "e", &[7; 20_000]);
    let blob = Local::new(directory.path()).open("e").unwrap();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    assert_eq!(blob.read_at(19_000, 1000, &mut before).unwrap(), 1000);
    fs::File::options().write(true).open(directory.path().join("e")).unwrap().set_len(100).unwrap();
    assert_eq!(blob.read_at(19_000, 1000, &mut after).unwrap(), 0);
    assert_eq!(blob.read_at(50, 100, &mut after).unwrap(), 50);
    assert_eq!((&before[..], &after[..]), (&[7; 1000][..], &[7; 50][..]));
}

/// The accumulated result of repeated listings.
struct Seen {
    local: Local,
    listing: Listing,
    names: BTreeSet<String>,
    reported: usize,
}

impl Seen {
    fn list(&mut self) -> &BTreeSet<String> {
        let Seen { local, listing, names, reported } = self;
        *reported = 0;
        listing
            .walk(local, "index", &mut |directory, name| {
                // A file may be reported while still unfinished.
                if !name.ends_with(".tmp") {
                    *reported += 1;
                    names.insert(format!("{directory}/{name}"));
                }
            })
            .unwrap();
        names
    }
}

fn seen(root: &Path) -> Seen {
    Seen { local: Local::new(root), listing: Listing::default(), names: BTreeSet::new(), reported: 0 }
}

#[test]
fn unchanged_directories_are_not_listed_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut seen = seen(directory.path());
    assert!(seen.list().is_empty());
    for step in 0..3 {
        write(directory.path(), &format!("index/{step}/f"), b"");
    }
    assert_eq!(seen.list().len(), 3);
    // The directory is listed again until its modification time can no longer hide additions.
    std::thread::sleep(std::time::Duration::from_millis(120));
    seen.list();
    seen.list();
    assert_eq!(seen.reported, 0);
    write(directory.path(), "index/1/g", b"");
    assert_eq!((seen.list().len(), seen.reported), (4, 2));
}

#[test]
fn watched_directories_report_only_new_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut seen = seen(directory.path());
    for at in 0..300 {
        write(directory.path(), &format!("index/0/{at}"), b"");
    }
    assert_eq!(seen.list().len(), 300);
    seen.list();
    for at in 300..320 {
        write(directory.path(), &format!("index/0/{at}"), b"");
        assert_eq!(seen.list().len(), at + 1);
    }
    // A new directory, then a new run in place of the old one.
    write(directory.path(), "index/1/x", b"");
    assert_eq!(seen.list().len(), 321);
    write(directory.path(), "index/1/y", b"");
    assert_eq!(seen.list().len(), 322);
    fs::rename(directory.path().join("index"), directory.path().join("old")).unwrap();
    write(directory.path(), "index/0/new", b"");
    assert!(seen.list().contains("index/0/new"));
    fs::remove_dir_all(directory.path().join("index")).unwrap();
    seen.list();
    write(directory.path(), "index/5/newer", b"");
    assert!(seen.list().contains("index/5/newer"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn listing_misses_no_file(batches in prop::collection::vec(prop::collection::vec((0u8..4, 0u16..400), 0..120), 1..6)) {
        let directory = tempfile::tempdir().unwrap();
        let mut seen = seen(directory.path());
        let mut there = BTreeSet::new();
        for batch in batches {
            for (folder, name) in batch {
                let key = format!("index/{folder}/{name}");
                write(directory.path(), &key, b"");
                there.insert(key);
            }
            prop_assert_eq!(seen.list(), &there);
        }
    }
}

proptest! {
    #[test]
    fn accepted_keys_have_only_normal_components(key in "[a./\\\\:C]{0,8}") {
        if let Ok(parts) = inside(&key) {
            let path: std::path::PathBuf = parts.collect();
            prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
        }
    }
}
