use proptest::prelude::*;

use super::*;
use crate::log::tests::{directory as lane, restart, scalar};
use crate::log::{Log, Orphans};
use crate::step::Mode;

const KEY: &str = "events.out.tfevents.1";

fn scanned(bytes: &[u8]) -> Scanner {
    let mut scanner = Scanner::default();
    scanner.read(&bytes, 1 << 20).unwrap();
    scanner
}

/// A log with two tags, a restart, a damaged record and damage at its end.
fn log(steps: i64) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..steps).flat_map(|step| scalar(["a", "b"][step as usize % 2], step, 0.5)).collect();
    bytes.extend(restart(steps / 2));
    bytes.extend(scalar("a", steps / 2, 1.5));
    let mut damaged = scalar("b", steps, 1.0);
    damaged[20] ^= 1;
    bytes.extend(damaged);
    bytes.extend([7; 30]);
    bytes
}

fn state_of(scanner: &Scanner) -> String {
    let of = |series: &Series| {
        let column = &series.column;
        let cells: Vec<_> = (0..column.len()).map(|row| column.cell(row)).collect();
        let runs: Vec<_> = column.runs().collect();
        let about = (&series.tag, series.class, &series.plugin, &series.description, column.is_ascending());
        format!("{about:?} {:?} {:?} {cells:?} {runs:?}", column.steps(), column.wall_times())
    };
    let problems: Vec<_> = scanner.problems().collect();
    let all: Vec<_> = scanner.series().iter().map(of).collect();
    format!("{} {:?} {:?} {problems:?} {all:#?}", scanner.end(), scanner.version(), scanner.restarts())
}

fn cached_version() -> CachedVersion {
    CachedVersion { about: FileVersion { size: 5, written: 6 }, ends: Ends { head: 1, tail: 2 } }
}

fn seal(bytes: &mut [u8]) {
    let crc = crc32c(&bytes[FRONT..]);
    bytes[MAGIC.len()..FRONT].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn cache_round_trips() {
    for steps in [0, 1, 2, 40] {
        let scanner = scanned(&log(steps));
        let (again, was) = decode(&encode(&scanner, &cached_version(), KEY), KEY).unwrap();
        assert_eq!(state_of(&again), state_of(&scanner));
        assert_eq!(was, cached_version());
    }
    assert!(decode(&encode(&scanned(&log(4)), &cached_version(), KEY), "another").is_none());
}

#[test]
fn any_damage_is_detected() {
    let bytes = encode(&scanned(&log(6)), &cached_version(), KEY);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert!(decode(&damaged, KEY).is_none(), "byte {at}");
        assert!(decode(&bytes[..at], KEY).is_none(), "cut at {at}");
    }
}

/// Opens a log with the cache.
fn opened(directory: &std::path::Path, root: &std::path::Path) -> Log {
    let lanes = vec![lane("", "worker_0", Mode::Global)];
    let log = Log::new(lanes, Orphans::Dropped, (0, i64::MAX));
    let mut log = log.cached(Cache::new(directory.into(), "log".into()));
    log.list_local(root).unwrap();
    log.read(&Local::new(root), Some(root), Some(1)).unwrap();
    log
}

#[test]
fn cache_is_used_only_for_unchanged_files() {
    let folder = tempfile::tempdir().unwrap();
    let (root, directory) = (folder.path().join("run"), folder.path().join("cache"));
    fs::create_dir(&root).unwrap();
    let path = root.join(KEY);
    let content: Vec<u8> = (0..40_000).flat_map(|step| scalar("loss", step, step as f32)).collect();
    fs::write(&path, &content).unwrap();
    let first = opened(&directory, &root);
    assert_eq!(first.cached_bytes(), 0);
    let cached = fs::read_dir(&directory).unwrap().count();
    assert_eq!(cached, 1, "no unfinished file is left");
    assert_eq!(opened(&directory, &root).cached_bytes(), content.len() as u64);

    // Appended data: only the new part is read.
    let more = [content.clone(), scalar("loss", 40_000, 1.0)].concat();
    fs::write(&path, &more).unwrap();
    let grown = opened(&directory, &root);
    assert_eq!((grown.cached_bytes(), grown.last_step()), (content.len() as u64, Some(40_000)));

    // Truncated.
    fs::write(&path, &content[..content.len() / 2]).unwrap();
    let cut = opened(&directory, &root);
    assert_eq!(cut.cached_bytes(), 0);
    assert!(cut.last_step() < Some(25_000));

    // Replaced by a file of the same size, and by a longer one.
    for extra in [0, 1] {
        fs::remove_dir_all(&directory).unwrap();
        fs::write(&path, &content).unwrap();
        opened(&directory, &root);
        let steps = 0..40_000 + extra;
        let other: Vec<u8> = steps.flat_map(|step| scalar("loss", step, -(step as f32))).collect();
        fs::write(&path, &other).unwrap();
        let replaced = opened(&directory, &root);
        assert_eq!(replaced.cached_bytes(), 0);
        let found = replaced.find(replaced.id("loss").unwrap(), 7, None).unwrap();
        assert_eq!(found.cell, crate::log::Cell::Number(-7.0));
    }

    // Faults of the cache: truncated, garbage, a directory, missing.
    let [cached] = [fs::read_dir(&directory).unwrap().next().unwrap().unwrap().path()];
    let whole = fs::read(&cached).unwrap();
    for wrong in [&whole[..whole.len() / 2], b"", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
        fs::write(&cached, wrong).unwrap();
        assert_eq!(opened(&directory, &root).last_step(), Some(40_000));
    }
    fs::remove_file(&cached).unwrap();
    fs::create_dir(&cached).unwrap();
    assert_eq!(opened(&directory, &root).last_step(), Some(40_000));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "a failed write leaves no file");
    fs::remove_dir_all(&directory).unwrap();
    fs::write(&directory, b"a file where the directory should be").unwrap();
    assert_eq!(opened(&directory, &root).last_step(), Some(40_000));
}

proptest! {
    /// A cache with a valid checksum is rejected, or it is one that a scanner could have produced.
    #[test]
    fn hostile_cache_is_handled(
        steps in 0i64..12,
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0), Just(0xff)]), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = encode(&scanned(&log(steps)), &cached_version(), KEY);
        for (at, byte) in changes {
            let at = FRONT + at.index(bytes.len() - FRONT);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(FRONT + cut.index(bytes.len() - FRONT));
        }
        seal(&mut bytes);
        check_decoded(&bytes);
    }

    #[test]
    fn arbitrary_bytes_are_handled(mut bytes in prop::collection::vec(any::<u8>(), FRONT..400)) {
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        seal(&mut bytes);
        check_decoded(&bytes);
    }
}

fn check_decoded(bytes: &[u8]) {
    let Some((scanner, _)) = decode(bytes, KEY) else { return };
    assert!(scanner.memory() <= 4096 + 64 * bytes.len());
    for series in scanner.series() {
        let column = &series.column;
        assert_eq!(column.steps().len(), column.wall_times().len());
        assert!((0..column.len()).all(|row| column.cell(row).is_some()));
        assert_eq!(column.numbers().is_some(), series.class == Class::Scalar);
        let mut next = 0;
        for (restarts, first, end) in column.runs() {
            assert!(first == next && end > first && restarts as usize <= scanner.restarts().len());
            next = end;
        }
        assert_eq!(next, column.len());
    }
    // Reading can continue from it.
    let mut scanner = scanner;
    scanner.read(&log(5).as_slice(), 1 << 20).unwrap();
}
