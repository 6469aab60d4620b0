//! The `Event` message, the payload of every record in an event file.

use super::summary::{NAME, Value};
use super::wire::Fields;
use crate::error::Result;

/// The content of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// No content.
    Empty,
    /// The version of the writer, in the first record of a TensorBoard file.
    FileVersion(&'a str),
    /// A computation graph, not parsed.
    Graph(&'a [u8]),
    /// Summary values: see [`Event::values`].
    Summary,
    /// Another field, by number, not parsed: a log message, session log or run metadata.
    Other(u32),
}

/// An event.
#[derive(Debug, Clone)]
pub struct Event<'a> {
    /// Wall time, in seconds since 1970.
    pub wall_time: f64,
    /// The global step; omitted in the encoding if 0.
    pub step: i64,
    /// The content.
    pub content: Content<'a>,
    /// Whether the writer restarts at this step, which supersedes everything written at it and later steps.
    pub restart: bool,
    /// The fields, from the first summary on.
    summaries: Fields<'a>,
}

impl<'a> Event<'a> {
    /// Parses a payload. Values are parsed on iteration.
    pub fn parse(payload: &'a [u8]) -> Result<Self> {
        Event::of(Fields::new(payload, 0, "Event"))
    }

    /// Parses the beginning of a payload. Missing fields are omitted or cut.
    pub fn parse_beginning(payload: &'a [u8]) -> Result<Self> {
        Event::of(Fields::beginning(payload, 0, "Event"))
    }

    fn of(mut fields: Fields<'a>) -> Result<Self> {
        let summaries = fields.clone();
        let mut event = Event { wall_time: 0.0, step: 0, content: Content::Empty, restart: false, summaries };
        loop {
            let here = fields.at();
            let Some(field) = fields.step()? else { break };
            match field.number {
                1 => event.wall_time = field.double()?,
                2 => event.step = field.int()?.cast_signed(),
                5 => {
                    field.bytes()?;
                    // A later content field replaces an earlier one; repeated summaries are merged.
                    if event.content != Content::Summary {
                        event.content = Content::Summary;
                        event.summaries = fields.from(here);
                    }
                }
                3 => event.content = Content::FileVersion(field.text()?),
                4 => event.content = Content::Graph(field.bytes()?),
                7 => {
                    event.content = Content::Other(7);
                    event.restart = starts_a_session(field.message("SessionLog")?)?;
                }
                number @ (6 | 8 | 9) => {
                    field.bytes()?;
                    event.content = Content::Other(number);
                }
                _ => {}
            }
        }
        Ok(event)
    }

    /// The values of the summary, in order; none for other content.
    pub fn values(&self) -> Values<'a> {
        let mut events = self.summaries.clone();
        if self.content != Content::Summary {
            events = Fields::new(&[], 0, "Event");
        }
        Values { events, summary: Fields::new(&[], 0, "Summary") }
    }
}

/// Whether a session log has status START, which marks that the writer continues from an earlier step.
fn starts_a_session(mut fields: Fields<'_>) -> Result<bool> {
    let mut status = 0;
    while let Some(field) = fields.step()? {
        if field.number == 1 {
            status = field.int()?;
        }
    }
    Ok(status == 1)
}

/// An iterator over the values of an event. Continues after a malformed value, and ends where a summary is malformed.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    events: Fields<'a>,
    summary: Fields<'a>,
}

impl<'a> Values<'a> {
    #[inline]
    fn step(&mut self) -> Result<Option<Fields<'a>>> {
        loop {
            while let Some(field) = self.summary.step()? {
                if field.number == 1 {
                    return field.message(NAME).map(Some);
                }
            }
            match self.events.step()? {
                Some(field) if field.number == 5 => self.summary = field.message("Summary")?,
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<Value<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.events = Fields::new(&[], 0, "Event");
            self.summary = Fields::new(&[], 0, "Summary");
        }
        step.transpose().map(|fields| Value::of(fields?))
    }
}
