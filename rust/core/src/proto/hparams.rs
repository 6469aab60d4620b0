//! Hyperparameters, as TensorBoard's plugin stores them in a value's metadata.

use super::wire::Fields;
use crate::error::Result;

/// The value of a hyperparameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Hparam {
    /// No value.
    Null,
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// A boolean.
    Bool(bool),
}

/// Parses the content of the plugin into (name, value) pairs.
pub fn hparams(content: &[u8]) -> Result<Vec<(String, Hparam)>> {
    let mut found = Vec::new();
    let mut data = Fields::new(content, 0, "HParamsPluginData");
    while let Some(field) = data.step()? {
        if field.number != 3 {
            continue;
        }
        let mut session = field.message("SessionStartInfo")?;
        while let Some(field) = session.step()? {
            if field.number != 1 {
                continue;
            }
            let (mut name, mut value) = (String::new(), Hparam::Null);
            let mut entry = field.message("SessionStartInfo.hparams")?;
            while let Some(field) = entry.step()? {
                match field.number {
                    1 => field.text()?.clone_into(&mut name),
                    2 => {
                        let mut kinds = field.message("Value")?;
                        while let Some(kind) = kinds.step()? {
                            value = match kind.number {
                                2 => Hparam::Number(kind.double()?),
                                3 => Hparam::Text(kind.text()?.to_owned()),
                                4 => Hparam::Bool(kind.int()? != 0),
                                _ => Hparam::Null,
                            };
                        }
                    }
                    _ => {}
                }
            }
            found.push((name, value));
        }
    }
    Ok(found)
}
