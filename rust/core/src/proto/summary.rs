//! A summary's value: a tag, metadata, and a scalar, histogram, image, sound or tensor.

use super::tensor::TensorProto;
use super::wire::{Field, Fields, Wire};
use crate::error::Result;

/// What the message is called in errors.
pub(super) const NAME: &str = "Summary.Value";

/// One named value.
#[derive(Debug, Clone)]
pub struct Value<'a> {
    /// The name: of the tensor, or of the TensorBoard chart.
    pub tag: &'a str,
    /// What it is.
    pub kind: Kind<'a>,
    /// Which plugin it belongs to, and what smdebug hides there.
    pub metadata: Option<Metadata<'a>>,
    /// Where it starts, counted from the start of the payload.
    pub at: usize,
    /// How many bytes it takes.
    pub size: usize,
}

/// What a value is.
#[derive(Debug, Clone)]
pub enum Kind<'a> {
    /// Nothing that this reader knows.
    None,
    /// A number.
    Scalar(f32),
    /// A histogram in a form that was given up before TensorFlow 1.0.
    OldHistogram(&'a [u8]),
    /// A picture, still encoded.
    Image(Image<'a>),
    /// A histogram.
    Histogram(Histogram),
    /// Sound, still encoded.
    Audio(Audio<'a>),
    /// A tensor.
    Tensor(TensorProto<'a>),
}

/// A picture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Image<'a> {
    /// Pixels from top to bottom.
    pub height: i32,
    /// Pixels from side to side.
    pub width: i32,
    /// 1 gray, 2 gray and alpha, 3 RGB, 4 RGBA, 5 YUV, 6 BGRA.
    pub colorspace: i32,
    /// The picture as PNG or the like.
    pub encoded: &'a [u8],
}

/// Sound.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Audio<'a> {
    /// Frames a second.
    pub sample_rate: f32,
    /// Channels of a frame.
    pub channels: i64,
    /// Frames in all.
    pub frames: i64,
    /// The sound as the content type says.
    pub encoded: &'a [u8],
    /// Its media type.
    pub content_type: &'a str,
}

/// A histogram: how many values fell at or below each limit and above the one before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
    /// How many values.
    pub num: f64,
    /// Their sum.
    pub sum: f64,
    /// The sum of their squares.
    pub sum_squares: f64,
    /// The right edge of each bucket.
    pub limits: Vec<f64>,
    /// How many values each bucket holds.
    pub counts: Vec<f64>,
}

/// A value's metadata.
#[derive(Debug, Clone)]
pub struct Metadata<'a> {
    /// What to call the value on a screen.
    pub display_name: &'a str,
    /// More about it, in Markdown.
    pub description: &'a str,
    /// 1 scalar, 2 tensor, 3 blobs; 0 unknown.
    pub data_class: u64,
    fields: Fields<'a>,
}

/// The plugins of a value: (name, content). TensorFlow's writers give one, smdebug's two.
#[derive(Debug, Clone)]
pub struct Plugins<'a>(Fields<'a>);

impl<'a> Value<'a> {
    /// The value in bytes that hold nothing else: what lay `at` such a place.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        Value::of(Fields::new(bytes, 0, NAME))
    }

    #[inline]
    pub(super) fn of(mut fields: Fields<'a>) -> Result<Self> {
        let at = fields.at();
        let mut value = Value { tag: "", kind: Kind::None, metadata: None, at, size: 0 };
        // The number of the last field that said what the value is: a later kind takes an earlier one's place.
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
    /// What to call it in a message to a person.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::None => "nothing this reader knows",
            Kind::Scalar(_) => "a scalar",
            Kind::OldHistogram(_) | Kind::Histogram(_) => "a histogram",
            Kind::Image(_) => "an image",
            Kind::Audio(_) => "a sound",
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

    /// Its plugins, in order.
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

/// A 32-bit integer as protobuf reads one: the low half of what stands there.
fn int32(field: &Field<'_>) -> Result<i32> {
    Ok((field.int()? as u32).cast_signed())
}

/// Repeated floats, packed or one by one. Takes as many bytes as stand there.
fn doubles(field: &Field<'_>, into: &mut Vec<f64>) -> Result<()> {
    match field.wire {
        Wire::Len(bytes) => {
            let (numbers, []) = bytes.as_chunks() else {
                return Err(field.wrong(format_args!("{} bytes of packed 64-bit floats", bytes.len())));
            };
            into.extend(numbers.iter().map(|number| f64::from_le_bytes(*number)));
        }
        _ => into.push(field.double()?),
    }
    Ok(())
}
