//! A zero-copy protobuf parser for the messages of event files, and an encoder.
//!
//! Parsed values borrow from the input. Lengths are checked against the available bytes before anything is allocated.
//! Unknown fields are skipped, so files of newer writers can be read.

pub mod encode;
mod event;
mod hparams;
mod scalar;
mod summary;
mod tensor;
mod wire;

pub use event::{Content, Event, Values};
pub use hparams::{Hparam, hparams};
pub use scalar::ScalarEvent;
pub use summary::{Audio, Histogram, Image, Kind, Metadata, Plugins, Value};
pub use tensor::{MAX_RANK, Shape, TensorProto};
pub use wire::{Field, Fields, Wire};
