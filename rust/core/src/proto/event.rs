//! The message in every record of an event file.

use super::summary::{NAME, Value};
use super::wire::Fields;
use crate::error::Result;

/// What an event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// Nothing.
    Empty,
    /// The first record of a TensorBoard file: the version of its writer.
    FileVersion(&'a str),
    /// A computation graph, not looked into.
    Graph(&'a [u8]),
    /// Values: see [`Event::values`].
    Summary,
    /// A field of this number, not looked into: a log message, a session's state, run metadata.
    Other(u32),
}

/// One event.
#[derive(Debug, Clone)]
pub struct Event<'a> {
    /// When it was written, in seconds since 1970.
    pub wall_time: f64,
    /// The global step. Left out on the wire when it is 0.
    pub step: i64,
    /// What it carries.
    pub content: Content<'a>,
    /// Whether it says that a writer begins anew at this step: what was written of it and of later steps is void.
    pub restart: bool,
    /// The fields from the first summary on.
    summaries: Fields<'a>,
}

impl<'a> Event<'a> {
    /// The event in a record's payload. Its values are looked at as they are asked for.
    pub fn parse(payload: &'a [u8]) -> Result<Self> {
        Event::of(Fields::new(payload, 0, "Event"))
    }

    /// The event whose payload begins with these bytes. What they don't reach is left out or cut short.
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
                    // A later kind of content takes an earlier one's place; a further summary adds to the one before.
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

    /// The summary's values, in order; none where the content is something else.
    pub fn values(&self) -> Values<'a> {
        let mut events = self.summaries.clone();
        if self.content != Content::Summary {
            events = Fields::new(&[], 0, "Event");
        }
        Values { events, summary: Fields::new(&[], 0, "Summary") }
    }
}

/// Whether a session's log says START, which is how a writer marks that it goes on from an earlier step.
fn starts_a_session(mut fields: Fields<'_>) -> Result<bool> {
    let mut status = 0;
    while let Some(field) = fields.step()? {
        if field.number == 1 {
            status = field.int()?;
        }
    }
    Ok(status == 1)
}

/// The values of an event, in order. Ends at the first that can't be read.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    events: Fields<'a>,
    summary: Fields<'a>,
}

impl<'a> Values<'a> {
    #[inline]
    fn step(&mut self) -> Result<Option<Value<'a>>> {
        loop {
            while let Some(field) = self.summary.step()? {
                if field.number == 1 {
                    return Value::of(field.message(NAME)?).map(Some);
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
        step.transpose()
    }
}
