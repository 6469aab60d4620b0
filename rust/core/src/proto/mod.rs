//! Protobuf without a copy: a walker over the wire, the messages of an event file seen through it, and an encoder.
//!
//! Everything handed out borrows from the input. Nothing is allocated on the word of a length field: a length is checked
//! against the bytes that are there first. Unknown fields are skipped, so newer writers can be read.

pub mod encode;
mod event;
mod hparams;
mod number;
mod summary;
mod tensor;
mod wire;

pub use event::{Content, Event, Values};
pub use hparams::{Hparam, hparams};
pub use number::Number;
pub use summary::{Audio, Histogram, Image, Kind, Metadata, Plugins, Value};
pub use tensor::{MAX_RANK, Shape, TensorProto};
pub use wire::{Field, Fields, Wire};
