//! Fuzzes the protobuf parser against prost: both accept the same payloads and read the same values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use smdwidgets_core::error::{Error, Result};
use smdwidgets_core::proto::{self, Content, Kind, TensorProto};
use smdwidgets_core::tensor::{DType, Data, TensorView};

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "What", tags = "3, 4, 5, 6, 7, 8, 9")]
    what: Option<What>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(bytes, tag = "4")]
    GraphDef(Vec<u8>),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(bytes, tag = "6")]
    LogMessage(Vec<u8>),
    #[prost(bytes, tag = "7")]
    SessionLog(Vec<u8>),
    #[prost(bytes, tag = "8")]
    RunMetadata(Vec<u8>),
    #[prost(bytes, tag = "9")]
    MetaGraph(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(message, repeated, tag = "1")]
    value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, tag = "1")]
    tag: String,
    #[prost(oneof = "Of", tags = "2, 3, 4, 5, 6, 8")]
    of: Option<Of>,
    #[prost(message, optional, tag = "9")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Of {
    #[prost(float, tag = "2")]
    Simple(f32),
    #[prost(bytes, tag = "3")]
    Old(Vec<u8>),
    #[prost(message, tag = "4")]
    Image(Image),
    #[prost(message, tag = "5")]
    Histo(Histo),
    #[prost(message, tag = "6")]
    Audio(Audio),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(message, repeated, tag = "1")]
    plugins: Vec<Plugin>,
    #[prost(string, tag = "2")]
    display_name: String,
    #[prost(string, tag = "3")]
    description: String,
    #[prost(uint64, tag = "4")]
    data_class: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Plugin {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes, tag = "2")]
    content: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Image {
    #[prost(int32, tag = "1")]
    height: i32,
    #[prost(int32, tag = "2")]
    width: i32,
    #[prost(int32, tag = "3")]
    colorspace: i32,
    #[prost(bytes, tag = "4")]
    encoded: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Histo {
    #[prost(double, tag = "1")]
    min: f64,
    #[prost(double, tag = "2")]
    max: f64,
    #[prost(double, tag = "3")]
    num: f64,
    #[prost(double, tag = "4")]
    sum: f64,
    #[prost(double, tag = "5")]
    sum_squares: f64,
    #[prost(double, repeated, tag = "6")]
    limits: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    counts: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Audio {
    #[prost(float, tag = "1")]
    sample_rate: f32,
    #[prost(int64, tag = "2")]
    channels: i64,
    #[prost(int64, tag = "3")]
    frames: i64,
    #[prost(bytes, tag = "4")]
    encoded: Vec<u8>,
    #[prost(string, tag = "5")]
    content_type: String,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
    #[prost(bytes, tag = "4")]
    content: Vec<u8>,
    #[prost(float, repeated, tag = "5")]
    float_val: Vec<f32>,
    #[prost(double, repeated, tag = "6")]
    double_val: Vec<f64>,
    #[prost(int32, repeated, tag = "7")]
    int_val: Vec<i32>,
    #[prost(bytes, repeated, tag = "8")]
    string_val: Vec<Vec<u8>>,
    #[prost(float, repeated, tag = "9")]
    scomplex_val: Vec<f32>,
    #[prost(int64, repeated, tag = "10")]
    int64_val: Vec<i64>,
    #[prost(bool, repeated, tag = "11")]
    bool_val: Vec<bool>,
    #[prost(double, repeated, tag = "12")]
    dcomplex_val: Vec<f64>,
    #[prost(int32, repeated, tag = "13")]
    half_val: Vec<i32>,
    #[prost(uint32, repeated, tag = "16")]
    uint32_val: Vec<u32>,
    #[prost(uint64, repeated, tag = "17")]
    uint64_val: Vec<u64>,
    #[prost(bytes, tag = "18")]
    float8_val: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(message, repeated, tag = "2")]
    dim: Vec<Dim>,
    #[prost(bool, tag = "3")]
    unknown_rank: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Dim {
    #[prost(int64, tag = "1")]
    size: i64,
}

/// Fields that are parsed lazily, and what the parser rejects by design.
const LAZY: [&str; 13] = [
    "float_val",
    "double_val",
    "int_val",
    "string_val",
    "scomplex_val",
    "int64_val",
    "bool_val",
    "dcomplex_val",
    "half_val",
    "uint32_val",
    "uint64_val",
    "float8_val",
    "recursion limit",
];

fuzz_target!(|payload: &[u8]| {
    let theirs = Event::decode(payload);
    let ours = proto::Event::parse(payload).and_then(|event| {
        let values = event.values().collect::<Result<Vec<_>>>()?;
        for metadata in values.iter().filter_map(|value| value.metadata.as_ref()) {
            metadata.plugins().try_for_each(|plugin| plugin.map(drop))?;
        }
        Ok((event, values))
    });
    match (ours, theirs) {
        (Ok((event, values)), Ok(theirs)) => same_event(&event, &values, theirs),
        (Err(_), Err(_)) => {}
        (Err(error), Ok(theirs)) => {
            let by_choice = error.to_string().contains("more than one value") || error.to_string().contains("nested more than");
            assert!(by_choice, "{error}, but prost reads {theirs:?}");
        }
        (Ok(_), Err(error)) => {
            let error = error.to_string();
            if replaced(payload) {
                return;
            }
            assert!(LAZY.iter().any(|lazy| error.contains(lazy)), "prost refuses: {error}");
        }
    }
});

/// Whether an event has a summary that other content replaces; replaced content is not parsed.
fn replaced(payload: &[u8]) -> bool {
    let numbers = || proto::Fields::new(payload, 0, "Event").filter_map(|field| field.ok().map(|field| field.number));
    numbers().any(|number| number == 5) && numbers().any(|number| matches!(number, 3 | 4 | 6..=9))
}

fn same_event(event: &proto::Event<'_>, values: &[proto::Value<'_>], theirs: Event) {
    assert_eq!((event.wall_time.to_bits(), event.step), (theirs.wall_time.to_bits(), theirs.step));
    let mut expected = Vec::new();
    match (event.content, theirs.what) {
        (Content::Empty, None)
        | (Content::Other(6), Some(What::LogMessage(_)))
        | (Content::Other(7), Some(What::SessionLog(_)))
        | (Content::Other(8), Some(What::RunMetadata(_)))
        | (Content::Other(9), Some(What::MetaGraph(_))) => {}
        (Content::FileVersion(ours), Some(What::FileVersion(theirs))) => assert_eq!(ours, theirs),
        (Content::Graph(ours), Some(What::GraphDef(theirs))) => assert_eq!(ours, theirs),
        (Content::Summary, Some(What::Summary(summary))) => expected = summary.value,
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
    assert_eq!(values.len(), expected.len());
    for (ours, theirs) in values.iter().zip(expected) {
        same_value(ours, theirs);
    }
}

fn same_value(ours: &proto::Value<'_>, theirs: Value) {
    assert_eq!(ours.tag, theirs.tag);
    match (&ours.metadata, theirs.metadata) {
        (None, None) => {}
        (Some(ours), Some(theirs)) => {
            let plugins: Vec<_> = ours.plugins().map(|plugin| plugin.expect("walked before")).collect();
            let expected: Vec<_> = theirs.plugins.iter().map(|p| (p.name.as_str(), p.content.as_slice())).collect();
            assert_eq!(plugins, expected);
            assert_eq!(
                (ours.display_name, ours.description, ours.data_class),
                (theirs.display_name.as_str(), theirs.description.as_str(), theirs.data_class)
            );
        }
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
    match (&ours.kind, theirs.of) {
        (Kind::None, None) => {}
        (Kind::Scalar(ours), Some(Of::Simple(theirs))) => assert_eq!(ours.to_bits(), theirs.to_bits()),
        (Kind::OldHistogram(ours), Some(Of::Old(theirs))) => assert_eq!(*ours, theirs),
        (Kind::Image(ours), Some(Of::Image(theirs))) => {
            assert_eq!((ours.height, ours.width, ours.colorspace), (theirs.height, theirs.width, theirs.colorspace));
            assert_eq!(ours.encoded, theirs.encoded);
        }
        (Kind::Histogram(ours), Some(Of::Histo(theirs))) => {
            let few = [ours.min, ours.max, ours.num, ours.sum, ours.sum_squares];
            assert_eq!(bits(&few), bits(&[theirs.min, theirs.max, theirs.num, theirs.sum, theirs.sum_squares]));
            assert_eq!((bits(&ours.limits), bits(&ours.counts)), (bits(&theirs.limits), bits(&theirs.counts)));
        }
        (Kind::Audio(ours), Some(Of::Audio(theirs))) => {
            assert_eq!(ours.sample_rate.to_bits(), theirs.sample_rate.to_bits());
            assert_eq!((ours.channels, ours.frames), (theirs.channels, theirs.frames));
            assert_eq!((ours.encoded, ours.content_type), (theirs.encoded.as_slice(), theirs.content_type.as_str()));
        }
        (Kind::Tensor(ours), Some(Of::Tensor(theirs))) => same_tensor(ours, &theirs),
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
}

fn same_tensor(ours: &TensorProto<'_>, theirs: &Tensor) {
    assert_eq!(ours.dtype, u64::from(theirs.dtype.cast_unsigned()));
    assert_eq!(ours.content, theirs.content);
    match (&ours.shape, &theirs.shape) {
        (None, None) => {}
        (Some(ours), Some(theirs)) => {
            assert_eq!((ours.rank, ours.unknown_rank), (theirs.dim.len(), theirs.unknown_rank));
            assert!(ours.dims.iter().copied().eq(theirs.dim.iter().map(|dim| dim.size).take(proto::MAX_RANK)));
        }
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
    let view = match TensorView::from_proto(ours.clone()) {
        Ok(view) => view,
        Err(Error::Corrupt { .. } | Error::Unsupported { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let count = view.len() as usize;
    match &view.data {
        Data::Raw(raw) => {
            assert_eq!(*raw, theirs.content);
            assert_eq!(raw.len(), count * view.dtype.item_size());
        }
        Data::Owned(owned) => filled(owned, &typed(view.dtype, theirs), count, view.dtype.item_size()),
        Data::Strings(strings) => {
            assert_eq!(strings.len(), count);
            let given = theirs.string_val.len();
            assert!(strings.iter().zip(&theirs.string_val).all(|(ours, theirs)| ours == theirs));
            assert!(strings.iter().skip(given).all(|string| string == theirs.string_val.last().unwrap()));
        }
    }
}

/// The values of prost, followed by repetitions of the last one.
fn filled(ours: &[u8], given: &[u8], count: usize, item: usize) {
    assert_eq!(ours.len(), count * item);
    assert_eq!(&ours[..given.len()], given);
    if let Some(last) = given.len().checked_sub(item) {
        assert!(ours[given.len()..].chunks(item).all(|value| value == &given[last..]));
    }
}

fn typed(dtype: DType, theirs: &Tensor) -> Vec<u8> {
    match dtype {
        DType::F32 => theirs.float_val.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F64 => theirs.double_val.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I32 => theirs.int_val.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I16 | DType::U16 => theirs.int_val.iter().flat_map(|v| (*v as u16).to_le_bytes()).collect(),
        DType::I8 | DType::U8 => theirs.int_val.iter().map(|v| *v as u8).collect(),
        DType::C64 => theirs.scomplex_val.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I64 => theirs.int64_val.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::Bool => theirs.bool_val.iter().map(|v| u8::from(*v)).collect(),
        DType::C128 => theirs.dcomplex_val.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::F16 | DType::BF16 => theirs.half_val.iter().flat_map(|v| (*v as u16).to_le_bytes()).collect(),
        DType::U32 => theirs.uint32_val.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::U64 => theirs.uint64_val.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::Str => unreachable!("text is not owned"),
        _ => theirs.float8_val.clone(),
    }
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}
