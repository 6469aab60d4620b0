//! The names of a segment's tensors: one JSON object per line.

use serde::{Deserialize, Serialize};

/// A tensor of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// The number in the column `tensor`.
    pub id: u32,
    /// The name.
    pub name: String,
    /// The dtype; empty if unknown.
    #[serde(default)]
    pub dtype: String,
    /// The shape.
    #[serde(default)]
    pub shape: Vec<u64>,
    /// A collection, such as "weights"; empty if unknown.
    #[serde(default)]
    pub collection: String,
    /// The place of its layer in the model, if known.
    #[serde(default)]
    pub order: Option<u64>,
}

impl Name {
    /// The line in the names file.
    pub fn line(&self) -> Vec<u8> {
        // Strings and numbers always have a JSON form.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// The tensor of a line; `None` for a malformed one.
    pub fn of_line(line: &[u8]) -> Option<Name> {
        serde_json::from_slice(line).ok()
    }
}
