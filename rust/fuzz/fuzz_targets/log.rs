//! Any bytes as an event file of TensorBoard's that grows in two pieces: the same is read as in one go, and what it takes is
//! bounded by what is there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::log::{Directory, GLOBAL, Log, Orphans};
use smdwidgets_core::source::Memory;

const KEY: &str = "events.out.tfevents.1";

fn empty() -> Log {
    Log::new(vec![Directory { worker: "worker_0".into(), mode: GLOBAL, ..Directory::default() }], Orphans::Dropped, (0, i64::MAX))
}

fn read(log: &mut Log, bytes: &[u8]) {
    let mut memory = Memory::default();
    memory.insert(KEY, bytes);
    log.add_keys(&[KEY.to_owned()]);
    log.read(&memory, None, Some(1)).expect("memory can be read");
}

fuzz_target!(|given: (u16, &[u8])| {
    let (cut, bytes) = given;
    let (mut grown, mut whole) = (empty(), empty());
    read(&mut grown, &bytes[..bytes.len().min(usize::from(cut))]);
    read(&mut grown, bytes);
    read(&mut whole, bytes);
    assert_eq!(grown.steps(None), whole.steps(None));
    assert_eq!(grown.problems(), whole.problems());
    // A row of a column takes two bytes of the file at the very least.
    assert!(whole.memory() <= 4096 + 64 * bytes.len(), "{} bytes for {}", whole.memory(), bytes.len());
});
