//! Fuzzes event files that grow in two parts, with valid records among them: the result equals that of one read, memory is
//! bounded, and kept values equal the written ones.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::log::{Cell, Directory, Log, Orphans};
use smdwidgets_core::record;
use smdwidgets_core::source::Memory;
use smdwidgets_core::step::Mode;

const KEY: &str = "events.out.tfevents.1";

/// A piece of an event file, raw or as the payload of a record, and its number of repetitions.
type Piece<'a> = (bool, u8, &'a [u8]);

fn empty() -> Log {
    let lane = Directory { worker: "worker_0".into(), mode: Mode::Global, ..Directory::default() };
    Log::new(vec![lane], Orphans::Dropped, (0, i64::MAX))
}

fn read(log: &mut Log, bytes: &[u8]) {
    let mut memory = Memory::default();
    memory.insert(KEY, bytes);
    log.add_keys(&[KEY.to_owned()]);
    log.read(&memory, None, Some(1)).expect("memory can be read");
}

fuzz_target!(|given: (u16, Vec<Piece<'_>>)| {
    let (cut, pieces) = given;
    let bytes: Vec<u8> = pieces
        .iter()
        .flat_map(|(framed, times, piece)| {
            let piece = if *framed { record::encode(piece) } else { piece.to_vec() };
            piece.repeat(usize::from(times % 8) + 1)
        })
        .collect();
    let (mut grown, mut whole) = (empty().storing_values(), empty());
    read(&mut grown, &bytes[..bytes.len().min(usize::from(cut))]);
    read(&mut grown, &bytes);
    read(&mut whole, &bytes);
    assert_eq!(grown.steps(None), whole.steps(None));
    assert_eq!(grown.problems(), whole.problems());
    // A row takes at least two bytes of the file.
    assert!(whole.memory() <= 4096 + 64 * bytes.len(), "{} bytes for {}", whole.memory(), bytes.len());
    assert!(grown.memory() <= whole.memory() + 8192 + 64 * bytes.len());
    let mut buffer = Vec::new();
    for id in 0..whole.names().len() as u32 {
        for step in whole.steps_of(id, None) {
            let found = whole.find(id, step, None).expect("a listed step exists");
            if let Cell::ValueLocation(location) = found.cell {
                let written = &bytes[location.at as usize..][..location.size as usize];
                assert_eq!(grown.stored_value(KEY, location, &mut buffer), Some(written));
            }
        }
    }
});
