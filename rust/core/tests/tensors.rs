//! Decoding of payloads: the meaning of valid ones, and bounded errors for invalid ones.

mod common;

use common::{Counting, bytes, int, message, peak_memory_of, shape, smdebug, tensor};
use proptest::prelude::*;
use smdwidgets_core::error::Error;
use smdwidgets_core::proto::{Content, Event, Kind, encode};
use smdwidgets_core::record;
use smdwidgets_core::step::Mode;
use smdwidgets_core::tensor::{DType, Data, MAX_FILLED, TensorView, decode_head, decode_record, tensor_event};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn view(fields: &[Vec<u8>]) -> (DType, Vec<u64>, Vec<u8>) {
    let payload = tensor(fields);
    let TensorView { dtype, shape, data } = tensor_event(&payload).unwrap().tensor;
    (dtype, shape, data.bytes().unwrap().to_vec())
}

fn refused(fields: &[Vec<u8>]) -> Error {
    let payload = tensor(fields);
    let (result, most) = peak_memory_of(|| tensor_event(&payload).map(drop));
    assert!(most <= 9 * payload.len() + 4096, "{most} bytes for {}", payload.len());
    result.unwrap_err()
}

fn corrupt(fields: &[Vec<u8>], saying: &str) {
    let error = refused(fields);
    assert!(matches!(error, Error::Corrupt { .. }) && error.to_string().contains(saying), "{error}");
}

fn unsupported(fields: &[Vec<u8>], saying: &str) {
    let error = refused(fields);
    assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(saying), "{error}");
}

fn packed<const N: usize>(number: u32, values: &[[u8; N]]) -> Vec<u8> {
    bytes(number, &values.concat())
}

fn varints(number: u32, values: &[i64]) -> Vec<u8> {
    let mut packed = Vec::new();
    values.iter().for_each(|value| encode::varint(&mut packed, value.cast_unsigned()));
    bytes(number, &packed)
}

#[test]
fn raw_content_of_every_dtype() {
    for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Str) {
        let content: Vec<u8> = (0..6 * dtype.item_size() as u8).collect();
        let fields = [int(1, i64::from(dtype.number())), shape(&[2, 3]), bytes(4, &content)];
        assert_eq!(view(&fields), (dtype, vec![2, 3], content));
        let scalar = [int(1, i64::from(dtype.number())), shape(&[]), bytes(4, &vec![1; dtype.item_size()])];
        assert_eq!(view(&scalar).1, [0u64; 0]);
        assert_eq!(view(&[int(1, i64::from(dtype.number())), shape(&[0, 3])]), (dtype, vec![0, 3], vec![]));
    }
}

#[test]
fn typed_fields_of_every_dtype() {
    let floats = [1.5f32.to_le_bytes(), (-2f32).to_le_bytes()];
    let doubles = [1.5f64.to_le_bytes(), (-2f64).to_le_bytes()];
    let integers = [-1i64, 5];
    let cases: Vec<(DType, Vec<u8>, Vec<u8>)> = vec![
        (DType::F32, packed(5, &floats), floats.concat()),
        (DType::F64, packed(6, &doubles), doubles.concat()),
        (DType::I32, varints(7, &integers), integers.map(|v| (v as i32).to_le_bytes()).concat()),
        (DType::I16, varints(7, &integers), integers.map(|v| (v as i16).to_le_bytes()).concat()),
        (DType::I8, varints(7, &integers), vec![255, 5]),
        (DType::U8, varints(7, &[200, 5]), vec![200, 5]),
        (DType::U16, varints(7, &[60_000, 5]), [60_000u16, 5].map(u16::to_le_bytes).concat()),
        (
            DType::C64,
            packed(9, &[floats[0], floats[1], floats[0], floats[0]]),
            [floats[0], floats[1], floats[0], floats[0]].concat(),
        ),
        (DType::I64, varints(10, &integers), integers.map(i64::to_le_bytes).concat()),
        (DType::Bool, varints(11, &[7, 0]), vec![1, 0]),
        (
            DType::C128,
            packed(12, &[doubles[0], doubles[1], doubles[0], doubles[0]]),
            [doubles[0], doubles[1], doubles[0], doubles[0]].concat(),
        ),
        (DType::F16, varints(13, &[0x3c00, 0xc000]), [0x3c00u16, 0xc000].map(u16::to_le_bytes).concat()),
        (DType::BF16, varints(13, &[0x3f80, 0xc000]), [0x3f80u16, 0xc000].map(u16::to_le_bytes).concat()),
        (DType::U32, varints(16, &[4_000_000_000, 5]), [4_000_000_000u32, 5].map(u32::to_le_bytes).concat()),
        (DType::U64, varints(17, &integers), [u64::MAX, 5].map(u64::to_le_bytes).concat()),
        (DType::F8E4M3FN, bytes(18, &[0x38, 0xfe]), vec![0x38, 0xfe]),
        (DType::F8E5M2, bytes(18, &[0x3c, 0x80]), vec![0x3c, 0x80]),
    ];
    for (dtype, field, expected) in cases {
        let number = int(1, i64::from(dtype.number()));
        assert_eq!(
            view(&[number.clone(), shape(&[2, 1]), field.clone()]),
            (dtype, vec![2, 1], expected.clone()),
            "{dtype:?}"
        );
        // Without a shape the values are a vector; with a larger shape the last value is repeated, as in TensorFlow.
        assert_eq!(view(&[number.clone(), field.clone()]), (dtype, vec![2], expected.clone()), "{dtype:?}");
        assert_eq!(view(&[number.clone(), message(2, &[int(3, 1)]), field.clone()]).1, [2]);
        let last = &expected[expected.len() / 2..];
        let filled = [&expected[..], last, last].concat();
        assert_eq!(view(&[number.clone(), shape(&[4]), field.clone()]), (dtype, vec![4], filled), "{dtype:?}");
        corrupt(&[number, shape(&[1]), field], "2 values for shape [1]");
    }
}

#[test]
fn typed_fields_may_be_unpacked_or_split() {
    let mut one = Vec::new();
    encode::float(&mut one, 5, 1.0);
    let fields = [int(1, 1), shape(&[3]), one.clone(), packed(5, &[2f32.to_le_bytes()]), one];
    assert_eq!(view(&fields).2, [1f32, 2.0, 1.0].map(f32::to_le_bytes).concat());
    let fields = [int(1, 3), shape(&[2]), int(7, -3), int(7, 4)];
    assert_eq!(view(&fields).2, [-3i32, 4].map(i32::to_le_bytes).concat());
    assert_eq!(view(&[int(1, 3), int(7, -3)]).1, [0u64; 0], "a single value without a shape is a scalar");
}

#[test]
fn strings_of_any_rank() {
    for number in [vec![], vec![int(1, 7)]] {
        let payload =
            tensor(&[number.concat(), shape(&[2, 2]), bytes(8, b"a"), bytes(8, b""), bytes(8, &[255]), bytes(8, b"b")]);
        let tensor = tensor_event(&payload).unwrap().tensor;
        assert_eq!((tensor.dtype, &tensor.shape[..]), (DType::Str, &[2, 2][..]));
        assert_eq!(tensor.data, Data::Strings(vec![b"a", b"", &[255], b"b"]));
    }
    let payload = tensor(&[shape(&[0])]);
    assert_eq!(tensor_event(&payload).unwrap().tensor.data, Data::Strings(vec![]));
    let payload = tensor(&[shape(&[]), bytes(8, b"one")]);
    assert_eq!(tensor_event(&payload).unwrap().tensor.shape, [0u64; 0]);
    corrupt(&[shape(&[2]), bytes(4, b"ab")], "string tensor");
    corrupt(&[shape(&[1]), packed(5, &[[0; 4]])], "string tensor");
    corrupt(&[shape(&[3])], "no values");
    corrupt(&[shape(&[1]), int(8, 3)], "instead of bytes");
}

#[test]
fn wrong_shapes_are_cheap_errors() {
    let float = |sizes: &[i64]| [int(1, 1), shape(sizes), bytes(4, &[0; 8])];
    corrupt(&float(&[3]), "takes 12 bytes, found 8");
    corrupt(&float(&[]), "takes 4 bytes");
    corrupt(&float(&[0]), "takes 0 bytes");
    corrupt(&[int(1, 1), shape(&[2])], "takes 8 bytes, found 0");
    corrupt(&float(&[-1]), "negative");
    corrupt(&float(&[i64::MIN, 0]), "negative");
    corrupt(&float(&[1 << 31, 1 << 31]), "overflows");
    corrupt(&float(&[i64::MAX, i64::MAX, 0]), "overflows");
    corrupt(&float(&[1 << 62]), "overflows");
    unsupported(&[int(1, 1), shape(&vec![1; 1_000_000]), bytes(4, &[0; 4])], "1000000 dimensions");
    unsupported(&float(&[1; 65]), "65 dimensions");
    let deep = [1; 63].into_iter().chain([2]).collect::<Vec<_>>();
    assert_eq!(view(&float(&deep)).1.len(), 64);
    for typed in [packed(5, &[[0; 4]]), vec![]] {
        let most = MAX_FILLED.cast_signed() / 4;
        let fields = |size| [int(1, 1), shape(&[size]), typed.clone()];
        if typed.is_empty() {
            corrupt(&fields(most), "found 0");
        } else {
            assert_eq!(view(&fields(most)).2.len() as u64, MAX_FILLED);
            unsupported(&fields(most + 1), "filling shape");
            unsupported(&fields(1 << 60), "filling shape");
            corrupt(&fields(1 << 62), "overflows");
        }
    }
    unsupported(&[shape(&[1 << 40]), bytes(8, b"x")], "filling shape");
}

#[test]
fn unsupported_dtypes_are_named() {
    unsupported(&[int(1, 29), shape(&[1]), bytes(4, &[0])], "number 29 (int4)");
    unsupported(&[int(1, 11)], "qint8");
    unsupported(&[int(1, -1)], "number 4294967295 (unknown)");
}

#[test]
fn wrong_wire_types_are_errors() {
    corrupt(&[int(1, 1), shape(&[2]), varints(10, &[1, 2])], "values in field 10");
    corrupt(&[int(1, 1), shape(&[2]), bytes(5, &[0; 7])], "float32 values");
    corrupt(&[int(1, 3), shape(&[2]), bytes(7, &[0x80])], "ends inside a number");
    corrupt(&[int(1, 9), shape(&[1]), bytes(10, &[255; 11])], "more than 64 bits");
    corrupt(&[int(1, 8), shape(&[1]), packed(9, &[[0; 4]])], "incomplete complex64");
    corrupt(&[bytes(1, b"x")], "instead of an integer");
    corrupt(&[shape(&[1]), shape(&[1])], "more than one value");
}

#[test]
fn record_without_tensor_reports_its_content() {
    let mut scalar = Vec::new();
    encode::float(&mut scalar, 2, 1.0);
    for (payload, what) in [
        (vec![], "nothing"),
        (bytes(3, b"brain.Event:2"), "TensorBoard file version"),
        (bytes(4, b""), "a graph"),
        (bytes(6, b""), "a log message"),
        (bytes(5, b""), "an empty summary"),
        (message(5, &[message(1, &[scalar])]), "a scalar"),
        (message(5, &[message(1, &[bytes(5, b"")])]), "a histogram"),
    ] {
        let error = decode_record(&record::encode(&payload)).unwrap_err();
        assert!(matches!(&error, Error::Unsupported { .. }) && error.to_string().contains(what), "{error}");
        assert!(matches!(decode_head(&record::encode(&payload)), Err(Error::Unsupported { .. })));
    }
}

#[test]
fn modes_are_read_from_plugins() {
    let plugin = |name: &str, content: &str| message(1, &[bytes(1, name.as_bytes()), bytes(2, content.as_bytes())]);
    let read = |plugins: &[Vec<u8>]| {
        let value = [bytes(1, b"x"), message(8, &[int(1, 4), bytes(4, &[7])]), message(9, plugins)];
        let payload = message(5, &[message(1, &value)]);
        let event = tensor_event(&payload).unwrap();
        (event.mode, event.mode_step)
    };
    assert_eq!(read(&[plugin("mode_step", "12"), plugin("mode", "2")]), (Some(Mode::Eval), Some(12)));
    assert_eq!(read(&[plugin("scalars", "")]), (None, None));
    assert_eq!(read(&[plugin("mode", "5"), plugin("mode_step", "soon")]), (None, None));
}

#[test]
fn summaries_merge_and_later_content_replaces() {
    let value = |tag: &[u8]| message(5, &[message(1, &[bytes(1, tag)])]);
    let tags = |payload: &[u8]| -> Vec<String> {
        Event::parse(payload).unwrap().values().map(|value| value.unwrap().tag.to_owned()).collect()
    };
    assert_eq!(tags(&[value(b"a"), value(b"b")].concat()), ["a", "b"]);
    assert_eq!(tags(&[value(b"a"), bytes(4, b"graph"), value(b"b")].concat()), ["b"]);
    let graph_last = [value(b"a"), bytes(4, b"graph")].concat();
    assert_eq!(Event::parse(&graph_last).unwrap().content, Content::Graph(b"graph"));
    assert!(tags(&graph_last).is_empty());
}

#[test]
fn groups_and_unknown_fields_are_skipped() {
    // Group 20 with a nested group 21; fields 100 to 103 of every wire type.
    let group = [0xa3, 1, 0xab, 1, 8, 5, 0xac, 1, 0xa4, 1];
    let unknown =
        [&group[..], &int(100, 5), &bytes(101, b"abc"), &[0xb5, 6, 1, 2, 3, 4], &[0xb9, 6, 1, 2, 3, 4, 5, 6, 7, 8]]
            .concat();
    let value =
        [unknown.clone(), bytes(1, b"x"), unknown.clone(), message(8, &[int(1, 4), unknown.clone(), bytes(4, &[7])])];
    let payload = [unknown.clone(), message(5, &[unknown, message(1, &value)])].concat();
    assert_eq!(tensor_event(&payload).unwrap().tensor.data, Data::Raw(&[7]));
    let deep = [[0xa3u8, 1].repeat(100_000), [0xa4, 1].repeat(100_000)].concat();
    assert!(Event::parse(&deep).unwrap_err().to_string().contains("nested"));
    for bad in [&[0xa3u8, 1][..], &[0xa4, 1], &[0xa3, 1, 0xac, 1], &[0x0e], &[0x07], &[0x00], &[0x80]] {
        assert!(matches!(Event::parse(bad), Err(Error::Corrupt { .. })), "{bad:?}");
    }
}

#[test]
fn tensorboard_value_kinds() {
    let double = |number, value: f64| {
        let mut field = Vec::new();
        encode::double(&mut field, number, value);
        field
    };
    let values = [
        message(1, &[bytes(1, b"i"), message(4, &[int(1, 2), int(2, 3), int(3, 4), bytes(4, b"PNG")])]),
        message(
            1,
            &[message(
                5,
                &[double(1, -1.0), double(6, 0.5), packed(6, &[1f64.to_le_bytes()]), packed(7, &[3f64.to_le_bytes()])],
            )],
        ),
        message(1, &[message(6, &[int(2, 2), bytes(4, b"RIFF"), bytes(5, b"audio/wav")])]),
    ];
    let payload = [int(2, 3), message(5, &values)].concat();
    let kinds: Vec<_> = Event::parse(&payload).unwrap().values().map(|value| value.unwrap().kind).collect();
    let [Kind::Image(image), Kind::Histogram(histogram), Kind::Audio(audio)] = &kinds[..] else { panic!("{kinds:?}") };
    assert_eq!((image.height, image.width, image.colorspace, image.encoded), (2, 3, 4, &b"PNG"[..]));
    assert_eq!((histogram.min, &histogram.limits[..], &histogram.counts[..]), (-1.0, &[0.5, 1.0][..], &[3.0][..]));
    assert_eq!((audio.channels, audio.encoded, audio.content_type), (2, &b"RIFF"[..], "audio/wav"));
}

fn sound_payload() -> Vec<u8> {
    let content: Vec<u8> = (0..600).map(|i| i as u8).collect();
    [int(2, 9), tensor(&[int(1, 1), shape(&[15, 10]), bytes(4, &content)])].concat()
}

#[test]
fn head_needs_only_bytes_before_content() {
    let record = smdebug(&sound_payload());
    let enough = record.windows(600).position(|window| window[0] == 0 && window[1] == 1 && window[599] == 87).unwrap();
    for size in 0..=record.len() {
        let head = decode_head(&record[..size]);
        if size >= enough {
            let head = head.unwrap();
            assert_eq!(
                (head.tag, head.dtype, &head.shape[..], head.size),
                ("x", DType::F32, &[15, 10][..], record.len() as u64)
            );
        } else {
            let needed = if size < 12 { 12 } else { record.len() as u64 };
            assert!(matches!(head, Err(Error::Truncated { needed: w, .. }) if w == needed), "{size}: {head:?}");
        }
    }
}

#[test]
fn truncated_record_is_truncated_error() {
    let record = smdebug(&sound_payload());
    for size in 0..record.len() {
        assert!(matches!(decode_record(&record[..size]), Err(Error::Truncated { .. })), "{size}");
    }
    assert!(decode_record(&record).is_ok());
    assert!(decode_record(&[&record[..], b"more"].concat()).is_ok());
}

#[test]
fn truncated_payload_is_corrupt() {
    let payload = sound_payload();
    for size in 3..payload.len() {
        let record = smdebug(&payload[..size]);
        match decode_record(&record) {
            Err(Error::Corrupt { location, .. }) => assert!(location.offset <= record.len() as u64),
            other => panic!("{size}: {other:?}"),
        }
    }
}

/// Nested fields of every wire type with meaningful numbers, to reach deep code.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        (1u32..18, any::<i64>()).prop_map(|(number, value)| int(number, value)),
        (1u32..18, -3i64..70).prop_map(|(number, value)| int(number, value)),
        (1u32..18, prop::collection::vec(any::<u8>(), 0..24)).prop_map(|(number, value)| bytes(number, &value)),
        (1u32..18, any::<f32>()).prop_map(|(number, value)| {
            let mut field = Vec::new();
            encode::float(&mut field, number, value);
            field
        }),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        (prop_oneof![Just(5u32), Just(1), Just(8), Just(2), Just(9)], prop::collection::vec(inner, 0..6))
            .prop_map(|(number, fields)| message(number, &fields))
    })
}

proptest! {
    #[test]
    fn nested_garbage_is_bounded(fields in prop::collection::vec(garbage(), 0..5)) {
        let record = smdebug(&tensor(&fields));
        let (result, most) = peak_memory_of(|| decode_record(&record).map(|event| (event.tensor.len(), event.tensor.data)));
        match result {
            Ok((count, Data::Strings(strings))) => prop_assert_eq!(strings.len() as u64, count),
            Ok((_, Data::Owned(bytes))) => prop_assert!(bytes.len() as u64 <= MAX_FILLED.max(8 * record.len() as u64)),
            Ok(_) => {}
            Err(error) => {
                prop_assert!(most <= 9 * record.len() + 4096, "{} bytes for {}", most, record.len());
                prop_assert!(!error.to_string().is_empty());
            }
        }
        let _ = decode_head(&record[..record.len() / 2]);
    }

    #[test]
    fn event_garbage_is_bounded(fields in prop::collection::vec(garbage(), 0..6)) {
        let payload = fields.concat();
        let (_, most) = peak_memory_of(|| {
            let event = Event::parse(&payload)?;
            for value in event.values() {
                if let Some(metadata) = value?.metadata {
                    metadata.plugins().try_for_each(|plugin| plugin.map(drop))?;
                }
            }
            Ok::<_, Error>(())
        });
        prop_assert!(most <= 9 * payload.len() + 4096, "{} bytes for {}", most, payload.len());
    }

    #[test]
    fn flipped_bit_does_not_panic(bit: prop::sample::Index) {
        let mut record = smdebug(&sound_payload());
        let bit = bit.index(record.len() * 8);
        record[bit / 8] ^= 1 << (bit % 8);
        let (result, most) = peak_memory_of(|| decode_record(&record).map(|event| event.tensor.len()));
        prop_assert!(most <= 9 * record.len() + 4096);
        if bit / 8 < record::HEADER || bit / 8 >= record.len() - record::FOOTER {
            prop_assert!(matches!(result, Err(Error::Corrupt { .. })), "{:?}", result);
        }
        let mut framed = record::encode(&sound_payload());
        framed[bit / 8] ^= 1 << (bit % 8);
        let result = decode_record(&framed);
        prop_assert!(matches!(result, Err(Error::Corrupt { .. })), "{:?}", result);
    }
}
