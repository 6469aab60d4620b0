//! Fuzzes index files: accepted ones have all listed entries and survive a round trip.
#![no_main]

use libfuzzer_sys::fuzz_target;
use smdwidgets_core::error::Error;
use smdwidgets_core::index::Index;

fuzz_target!(|bytes: &[u8]| match Index::parse(bytes, "fuzzed.json") {
    Ok(index) => {
        // Unknown keys may hold what a JSON value cannot: unpaired surrogates, numbers beyond floats.
        if let Ok(json) = serde_json::from_slice::<serde_json::Value>(bytes) {
            let listed = |key: &str| json[key].as_array().map_or(0, Vec::len);
            assert_eq!(index.entries.len(), listed("tensor_payload"));
            assert_eq!((index.shapes.len(), index.shards.len()), (listed("shape_payload"), listed("shard_payload")));
        }
        let written = index.to_bytes();
        assert!(written.is_ascii());
        assert_eq!(Index::parse(&written, "written.json").expect("an encoded index parses"), index);
    }
    Err(Error::Index { location, .. }) => assert!(location.offset <= bytes.len() as u64),
    Err(error) => panic!("{error}"),
});
