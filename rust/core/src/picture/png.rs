//! PNG encoding and decoding: all color types with alpha, 8 or 16 bits.

use std::io::Cursor;

use png::{BitDepth, ColorType, Compression, Decoder, DecodingError, Encoder, Filter, Limits, Transformations};

use crate::error::{Error, Location, Result};
use crate::tensor::DType;

/// A decoded image: rows from top to bottom, channels interleaved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `U8` or `U16`.
    pub dtype: DType,
    /// Height, width, channels.
    pub shape: [u64; 3],
    /// The elements, little-endian.
    pub data: Vec<u8>,
}

/// Decodes a PNG of at most `max_pixels`.
pub fn decode(encoded: &[u8], max_pixels: u64) -> Result<Image> {
    let mut decoder =
        Decoder::new_with_limits(Cursor::new(encoded), Limits { bytes: max_pixels.saturating_mul(8) as usize });
    // Expands palettes to colors and fewer bits to 8.
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(wrong)?;
    let info = reader.info();
    if u64::from(info.width) * u64::from(info.height) > max_pixels {
        let what = format!("PNG of {} x {} pixels exceeds the limit of {max_pixels}", info.width, info.height);
        return Err(Error::Unsupported { location: Location::memory(0), what });
    }
    // Deflate compresses at most about 1000:1, so a larger image cannot be in the file.
    let size = reader.output_buffer_size().filter(|size| size / 1100 <= encoded.len() + 64);
    let Some(size) = size else {
        let what = "PNG data is too short for its size".to_owned();
        return Err(Error::Corrupt { location: Location::memory(0), what });
    };
    let mut data = vec![0; size];
    let frame = reader.next_frame(&mut data).map_err(wrong)?;
    data.truncate(frame.buffer_size());
    let wide = frame.bit_depth == BitDepth::Sixteen;
    if wide {
        data.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| pair.swap(0, 1));
    }
    let channels = frame.color_type.samples() as u64;
    Ok(Image {
        dtype: if wide { DType::U16 } else { DType::U8 },
        shape: [frame.height.into(), frame.width.into(), channels],
        data,
    })
}

/// Encodes 8-bit RGB pixels, row by row.
pub fn encode(width: u32, height: u32, pixels: &[u8]) -> Result<Vec<u8>> {
    let mut encoded = Vec::new();
    let mut encoder = Encoder::new(&mut encoded, width, height);
    encoder.set_color(ColorType::Rgb);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::High);
    // Pictures of few colors compress best without a filter.
    encoder.set_filter(Filter::NoFilter);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(pixels));
    written.map_err(|error| Error::Invalid(format!("cannot encode PNG of {width} x {height} pixels: {error}")))?;
    Ok(encoded)
}

fn wrong(error: DecodingError) -> Error {
    let what = format!("cannot decode PNG: {error}");
    match error {
        DecodingError::LimitsExceeded => Error::Unsupported { location: Location::memory(0), what },
        _ => Error::Corrupt { location: Location::memory(0), what },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(color: ColorType, depth: BitDepth, width: u32, height: u32, data: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, width, height);
        encoder.set_color(color);
        encoder.set_depth(depth);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        file
    }

    #[test]
    fn alpha_and_16_bits_are_kept() {
        let file = encoded(ColorType::GrayscaleAlpha, BitDepth::Sixteen, 1, 2, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let image = decode(&file, 100).unwrap();
        assert_eq!((image.dtype, image.shape), (DType::U16, [2, 1, 2]));
        assert_eq!(image.data, [2, 1, 4, 3, 6, 5, 8, 7]);
        let file = encoded(ColorType::Rgba, BitDepth::Eight, 1, 1, &[9, 8, 7, 6]);
        assert_eq!(decode(&file, 100).unwrap(), Image { dtype: DType::U8, shape: [1, 1, 4], data: vec![9, 8, 7, 6] });
    }

    #[test]
    fn encoded_pixels_are_decoded() {
        let pixels: Vec<u8> = (0..2 * 3 * 3).collect();
        let image = decode(&encode(3, 2, &pixels).unwrap(), 6).unwrap();
        assert_eq!(image, Image { dtype: DType::U8, shape: [2, 3, 3], data: pixels });
        for (width, height, pixels) in [(0, 1, &[][..]), (1, 1, &[0; 4])] {
            assert!(matches!(encode(width, height, pixels), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn fewer_bits_become_8() {
        let image = decode(&encoded(ColorType::Grayscale, BitDepth::One, 8, 1, &[0b1010_0000]), 100).unwrap();
        assert_eq!((image.shape, &image.data[..3]), ([1, 8, 1], &[255, 0, 255][..]));
    }

    #[test]
    fn wrong_size_does_not_allocate() {
        let mut file = encoded(ColorType::Rgba, BitDepth::Eight, 1, 1, &[0; 4]);
        file[18] = 0x40; // 16,384 pixels wide and more
        assert!(decode(&file, 1 << 28).is_err());
        assert!(matches!(
            decode(&encoded(ColorType::Grayscale, BitDepth::Eight, 30, 30, &[0; 900]), 100),
            Err(Error::Unsupported { .. })
        ));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_handled(at: prop::sample::Index, xor: u8, cut: prop::sample::Index) {
            let mut file = encoded(ColorType::Rgb, BitDepth::Sixteen, 3, 2, &[7; 36]);
            let at = at.index(file.len());
            file[at] ^= xor;
            let _ = decode(&file[..cut.index(file.len() + 1)], 1000);
        }
    }
}
