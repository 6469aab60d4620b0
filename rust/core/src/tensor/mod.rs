//! What a tensor is: a dtype, a shape and content that may lie at any byte offset.

mod dtype;
mod event;
mod straight;
mod typed;
mod view;

pub use dtype::DType;
pub use event::{Head, Meta, TensorEvent, decode_head, decode_record, encode_tensor_event, event_of, tensor_event};
pub use view::{Data, MAX_FILLED, TensorView};
