//! Tensor events: a tensor with its name, step and mode, as one record holds it.

use super::dtype::DType;
use super::parse::head_of;
use super::view::{Data, TensorView};
use crate::error::{Error, Location, Result};
use crate::proto::{Content, Event, Kind, Metadata, TensorProto, Value, encode};
use crate::record::{self, FOOTER, HEADER};
use crate::step::{Mode, Step};

/// A saved tensor with its metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorEvent<'a> {
    /// The global step.
    pub step: Step,
    /// Wall time of writing, in seconds since 1970.
    pub wall_time: f64,
    /// The name as saved.
    pub tag: &'a str,
    /// The mode, if the record states it.
    pub mode: Option<Mode>,
    /// The step within the mode, if the record states it.
    pub mode_step: Option<Step>,
    /// The tensor.
    pub tensor: TensorView<'a>,
}

/// Decodes the tensor of a parsed event, whatever the order of its fields.
pub fn general_tensor_event<'a>(event: &Event<'a>) -> Result<TensorEvent<'a>> {
    let (value, proto) = first_tensor(event)?;
    let tensor = TensorView::from_proto(proto)?;
    let ModePlugins { mode, mode_step } = value.metadata.as_ref().map(mode_plugins).transpose()?.unwrap_or_default();
    Ok(TensorEvent { step: event.step, wall_time: event.wall_time, tag: value.tag, mode, mode_step, tensor })
}

/// The first value of an event, which must be a tensor.
fn first_tensor<'a>(event: &Event<'a>) -> Result<(Value<'a>, TensorProto<'a>)> {
    let found = match event.content {
        Content::Empty => "nothing",
        Content::FileVersion(_) => "a TensorBoard file version",
        Content::Graph(_) => "a graph",
        Content::Other(_) => "a log message, session state or run metadata",
        Content::Summary => match event.values().next().transpose()? {
            None => "an empty summary",
            Some(mut value) => match std::mem::replace(&mut value.kind, Kind::None) {
                Kind::Tensor(proto) => return Ok((value, proto)),
                other => other.name(),
            },
        },
    };
    Err(Error::Unsupported { location: Location::memory(0), what: format!("the record holds {found}, not a tensor") })
}

/// The mode and mode step, which smdebug stores as two plugins.
#[derive(Default)]
pub(super) struct ModePlugins {
    pub mode: Option<Mode>,
    pub mode_step: Option<Step>,
}

impl ModePlugins {
    /// Reads one plugin. Content that does not parse belongs to another writer and is ignored.
    #[inline]
    pub fn note(&mut self, plugin: &str, content: &[u8]) {
        let content = std::str::from_utf8(content).unwrap_or_default();
        match plugin {
            "mode" => self.mode = content.parse().ok().and_then(Mode::from_number),
            "mode_step" => self.mode_step = content.parse().ok(),
            _ => {}
        }
    }
}

fn mode_plugins(metadata: &Metadata<'_>) -> Result<ModePlugins> {
    let mut found = ModePlugins::default();
    for plugin in metadata.plugins() {
        let (name, content) = plugin?;
        found.note(name, content);
    }
    Ok(found)
}

/// What the beginning of a record tells about its tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Head<'a> {
    /// The global step.
    pub step: Step,
    /// The tensor's name.
    pub tag: &'a str,
    /// The element type.
    pub dtype: DType,
    /// The size of each dimension.
    pub shape: Vec<u64>,
    /// Size of the whole record.
    pub size: u64,
    /// The raw content as offset in the record and size; `None` if the elements are in typed fields, or there are none.
    pub content: Option<(u64, u64)>,
}

/// Decodes dtype and shape from the first bytes of a record; a few hundred are nearly always enough.
///
/// [`Error::Truncated`] states how many bytes of the record are needed if these are too few.
pub fn decode_head(beginning: &[u8]) -> Result<Head<'_>> {
    let size = match record::next(beginning, 0) {
        record::Next::Record(record) => record.size as u64,
        record::Next::NeedMore(size) => size,
        record::Next::Corrupt(error) => return Err(error),
    };
    let found = beginning.len() as u64;
    let too_short = || Error::Truncated { location: Location::memory(0), needed: size, found };
    let Some(rest) = beginning.get(HEADER..) else { return Err(too_short()) };
    let payload = size - (HEADER + FOOTER) as u64;
    let whole = usize::try_from(payload).ok().and_then(|payload| rest.get(..payload));
    let event = match whole {
        Some(payload) => Event::parse(payload),
        None => Event::parse_beginning(rest),
    };
    let head = event.and_then(|event| {
        let (value, proto) = match first_tensor(&event) {
            // The tensor may follow in the missing bytes.
            Err(Error::Unsupported { .. }) if whole.is_none() => return Err(too_short()),
            first => first?,
        };
        let (dtype, shape) = head_of(&proto)?.ok_or_else(too_short)?;
        let content = (proto.content_size > 0 && dtype != DType::Str)
            .then(|| ((HEADER + proto.content_at) as u64, proto.content_size));
        Ok(Head { step: event.step, tag: value.tag, dtype, shape, size, content })
    });
    head.map_err(|error| match error {
        Error::Truncated { .. } => too_short(),
        error => error.within("", HEADER as u64),
    })
}

/// The metadata of a tensor event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Meta<'a> {
    /// The global step.
    pub step: Step,
    /// Wall time, in seconds since 1970.
    pub wall_time: f64,
    /// The tensor's name.
    pub tag: &'a str,
    /// The mode.
    pub mode: Mode,
    /// The step within the mode.
    pub mode_step: Step,
}

/// Encodes a payload without copying raw content: the bytes before and after it.
pub fn encode_tensor_event(meta: &Meta<'_>, dtype: DType, shape: &[u64], data: &Data<'_>) -> (Vec<u8>, Vec<u8>) {
    use encode::{bytes_size, varint_size};

    let mut metadata = Vec::with_capacity(48);
    for (name, value) in [("mode_step", meta.mode_step), ("mode", i64::from(meta.mode.number()))] {
        let mut plugin = Vec::with_capacity(32);
        encode::bytes(&mut plugin, 1, name.as_bytes());
        encode::bytes(&mut plugin, 2, value.to_string().as_bytes());
        encode::bytes(&mut metadata, 1, &plugin);
    }
    let mut dims = Vec::with_capacity(shape.len() * 8);
    for size in shape {
        let mut dim = Vec::with_capacity(11);
        if *size != 0 {
            encode::int(&mut dim, 1, *size);
        }
        encode::bytes(&mut dims, 2, &dim);
    }
    let dtype_size = if dtype == DType::Str { 0 } else { 1 + varint_size(u64::from(dtype.number())) };
    let content_size = match data {
        Data::Strings(strings) => strings.iter().map(|string| bytes_size(8, string.len())).sum(),
        data => bytes_size(4, data.bytes().map_or(0, <[u8]>::len)),
    };
    let tensor_size = dtype_size + bytes_size(2, dims.len()) + content_size;
    let value_size = bytes_size(1, meta.tag.len()) + bytes_size(8, tensor_size) + bytes_size(9, metadata.len());

    let mut before = Vec::with_capacity(64 + meta.tag.len() + dims.len());
    encode::double(&mut before, 1, meta.wall_time);
    if meta.step != 0 {
        encode::int(&mut before, 2, meta.step.cast_unsigned());
    }
    encode::length(&mut before, 5, bytes_size(1, value_size));
    encode::length(&mut before, 1, value_size);
    encode::bytes(&mut before, 1, meta.tag.as_bytes());
    encode::length(&mut before, 8, tensor_size);
    if dtype != DType::Str {
        encode::int(&mut before, 1, u64::from(dtype.number()));
    }
    encode::bytes(&mut before, 2, &dims);
    let mut behind = Vec::with_capacity(2 + metadata.len());
    match data {
        Data::Strings(strings) => strings.iter().for_each(|string| encode::bytes(&mut before, 8, string)),
        data => encode::length(&mut before, 4, data.bytes().map_or(0, <[u8]>::len)),
    }
    encode::bytes(&mut behind, 9, &metadata);
    (before, behind)
}
