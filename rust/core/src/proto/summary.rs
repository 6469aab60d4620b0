//! The `Summary.Value` message: a tag, metadata, and a scalar, histogram, image, audio or tensor.

use super::tensor::TensorProto;
use super::wire::{Field, Fields, Wire};
use crate::error::Result;

/// The name of the message in errors.
pub(super) const NAME: &str = "Summary.Value";

/// A tagged value.
#[derive(Debug, Clone)]
pub struct Value<'a> {
    /// The tag: the name of a tensor or of a TensorBoard chart.
    pub tag: &'a str,
    /// The value.
    pub kind: Kind<'a>,
    /// The metadata, which names the plugin; smdebug stores the mode there.
    pub metadata: Option<Metadata<'a>>,
    /// Offset from the start of the payload.
    pub at: usize,
    /// Size in bytes.
    pub size: usize,
}

/// The kind of a value.
#[derive(Debug, Clone)]
pub enum Kind<'a> {
    /// Unknown to this parser.
    None,
    /// A scalar.
    Scalar(f32),
    /// A histogram in a format that TensorFlow 1.0 removed.
    OldHistogram(&'a [u8]),
    /// An encoded image.
    Image(Image<'a>),
    /// A histogram.
    Histogram(Histogram),
    /// Encoded audio.
    Audio(Audio<'a>),
    /// A tensor.
    Tensor(TensorProto<'a>),
}

/// An encoded image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Image<'a> {
    /// Height in pixels.
    pub height: i32,
    /// Width in pixels.
    pub width: i32,
    /// 1 gray, 2 gray and alpha, 3 RGB, 4 RGBA, 5 YUV, 6 BGRA.
    pub colorspace: i32,
    /// The encoded image, as PNG or another format.
    pub encoded: &'a [u8],
}

/// Encoded audio.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Audio<'a> {
    /// Sample rate in hertz.
    pub sample_rate: f32,
    /// Number of channels.
    pub channels: i64,
    /// Number of frames.
    pub frames: i64,
    /// The encoded audio.
    pub encoded: &'a [u8],
    /// The media type.
    pub content_type: &'a str,
}

/// A histogram: for each bucket, the number of values above the previous limit and at or below its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// The number of values.
    pub num: f64,
    /// The sum of the values.
    pub sum: f64,
    /// The sum of the squared values.
    pub sum_squares: f64,
    /// The right edge of each bucket.
    pub limits: Vec<f64>,
    /// The count of each bucket.
    pub counts: Vec<f64>,
}

/// The metadata of a value.
#[derive(Debug, Clone)]
pub struct Metadata<'a> {
    /// The display name.
    pub display_name: &'a str,
    /// The description, in Markdown.
    pub description: &'a str,
    /// 1 scalar, 2 tensor, 3 blobs; 0 unknown.
    pub data_class: u64,
    fields: Fields<'a>,
}

/// An iterator over the plugins of a value, as (name, content). TensorFlow writes one, smdebug two.
#[derive(Debug, Clone)]
pub struct Plugins<'a>(Fields<'a>);

impl<'a> Value<'a> {
    /// Parses an encoded value.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        Value::of(Fields::new(bytes, 0, NAME))
    }

    #[inline]
    pub(super) fn of(mut fields: Fields<'a>) -> Result<Self> {
        let at = fields.at();
        let mut value = Value { tag: "", kind: Kind::None, metadata: None, at, size: 0 };
        // The number of the last value field: a later one replaces an earlier one.
        let mut kind = 0;
        while let Some(field) = fields.step()? {
            if matches!(field.number, 4..=6 | 8) && field.number == kind {
                return Err(field.wrong(format_args!("given twice")));
            }
            if matches!(field.number, 2..=6 | 8) {
                kind = field.number;
            }
            match field.number {
                1 => value.tag = field.text()?,
                2 => value.kind = Kind::Scalar(field.float()?),
                3 => value.kind = Kind::OldHistogram(field.bytes()?),
                4 => value.kind = Kind::Image(Image::parse(field.message("Summary.Image")?)?),
                5 => value.kind = Kind::Histogram(Histogram::parse(field.message("HistogramProto")?)?),
                6 => value.kind = Kind::Audio(Audio::parse(field.message("Summary.Audio")?)?),
                8 => value.kind = Kind::Tensor(TensorProto::parse(field.message("TensorProto")?)?),
                9 => field.once(&mut value.metadata, Metadata::parse(field.message("SummaryMetadata")?)?)?,
                _ => {}
            }
        }
        value.size = fields.at() - at;
        Ok(value)
    }
}

impl Kind<'_> {
    /// The name in error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::None => "a value of unknown kind",
            Kind::Scalar(_) => "a scalar",
            Kind::OldHistogram(_) | Kind::Histogram(_) => "a histogram",
            Kind::Image(_) => "an image",
            Kind::Audio(_) => "audio",
            Kind::Tensor(_) => "a tensor",
        }
    }
}

impl<'a> Image<'a> {
    fn parse(mut fields: Fields<'a>) -> Result<Self> {
        let mut image = Image::default();
        while let Some(field) = fields.step()? {
            match field.number {
                1 => image.height = int32(&field)?,
                2 => image.width = int32(&field)?,
                3 => image.colorspace = int32(&field)?,
                4 => image.encoded = field.bytes()?,
                _ => {}
            }
        }
        Ok(image)
    }
}

impl<'a> Audio<'a> {
    fn parse(mut fields: Fields<'a>) -> Result<Self> {
        let mut audio = Audio::default();
        while let Some(field) = fields.step()? {
            match field.number {
                1 => audio.sample_rate = field.float()?,
                2 => audio.channels = field.int()?.cast_signed(),
                3 => audio.frames = field.int()?.cast_signed(),
                4 => audio.encoded = field.bytes()?,
                5 => audio.content_type = field.text()?,
                _ => {}
            }
        }
        Ok(audio)
    }
}

impl Histogram {
    fn parse(mut fields: Fields<'_>) -> Result<Self> {
        let mut histogram = Histogram::default();
        while let Some(field) = fields.step()? {
            match field.number {
                1 => histogram.min = field.double()?,
                2 => histogram.max = field.double()?,
                3 => histogram.num = field.double()?,
                4 => histogram.sum = field.double()?,
                5 => histogram.sum_squares = field.double()?,
                6 => doubles(&field, &mut histogram.limits)?,
                7 => doubles(&field, &mut histogram.counts)?,
                _ => {}
            }
        }
        Ok(histogram)
    }
}

impl<'a> Metadata<'a> {
    #[inline]
    fn parse(fields: Fields<'a>) -> Result<Self> {
        let mut metadata = Metadata { display_name: "", description: "", data_class: 0, fields: fields.clone() };
        for field in fields {
            let field = field?;
            match field.number {
                1 => {
                    field.bytes()?;
                }
                2 => metadata.display_name = field.text()?,
                3 => metadata.description = field.text()?,
                4 => metadata.data_class = field.int()?,
                _ => {}
            }
        }
        Ok(metadata)
    }

    /// The plugins, in order.
    pub fn plugins(&self) -> Plugins<'a> {
        Plugins(self.fields.clone())
    }
}

impl<'a> Plugins<'a> {
    #[inline]
    fn step(&mut self) -> Result<Option<(&'a str, &'a [u8])>> {
        while let Some(field) = self.0.step()? {
            if field.number != 1 {
                continue;
            }
            let mut plugin: (&str, &[u8]) = ("", &[]);
            let mut parts = field.message("PluginData")?;
            while let Some(part) = parts.step()? {
                match part.number {
                    1 => plugin.0 = part.text()?,
                    2 => plugin.1 = part.bytes()?,
                    _ => {}
                }
            }
            return Ok(Some(plugin));
        }
        Ok(None)
    }
}

impl<'a> Iterator for Plugins<'a> {
    type Item = Result<(&'a str, &'a [u8])>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.0 = Fields::new(&[], 0, "SummaryMetadata");
        }
        step.transpose()
    }
}

/// A 32-bit integer, truncated as protobuf does.
fn int32(field: &Field<'_>) -> Result<i32> {
    Ok((field.int()? as u32).cast_signed())
}

/// Appends repeated floats, packed or single.
fn doubles(field: &Field<'_>, into: &mut Vec<f64>) -> Result<()> {
    match field.wire {
        Wire::Len(bytes) => {
            let (numbers, []) = bytes.as_chunks() else {
                return Err(field.wrong(format_args!("{} bytes are not whole 64-bit floats", bytes.len())));
            };
            into.extend(numbers.iter().map(|number| f64::from_le_bytes(*number)));
        }
        _ => into.push(field.double()?),
    }
    Ok(())
}
