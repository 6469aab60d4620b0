//! Tensors in event files: dtype, shape, and content at any byte offset.

mod canonical;
mod decode;
mod dtype;
mod event;
mod parse;
mod small;
mod typed;
mod view;

pub use decode::{decode_record, tensor_event};
pub use dtype::DType;
pub use event::{Head, Meta, TensorEvent, decode_head, encode_tensor_event, general_tensor_event};
pub use small::SmallFloat;
pub use view::{Data, MAX_FILLED, TensorView};
