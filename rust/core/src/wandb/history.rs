//! The messages of a run: rows of its history as columns, configuration and other facts as text.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::error::{Error, Location, Result};
use crate::proto::{Field, Fields, Wire};

/// Fields of a record.
const HISTORY: u32 = 2;
const CONFIG: u32 = 5;
const RUN: u32 = 17;
const EXIT: u32 = 18;
/// The field of items in a history and a configuration.
const ITEM: u32 = 1;
/// The field of a history's step, and that of its number.
const STEP: u32 = 2;
const STEP_NUMBER: u32 = 1;
/// Fields of an item.
const KEY: u32 = 1;
const NESTED_KEY: u32 = 2;
const INTEGER: u32 = 5;
const NUMBER: u32 = 6;
const VALUE_JSON: u32 = 16;
/// Fields of a run.
const RUN_CONFIG: u32 = 4;
const GIT: u32 = 21;
/// The commit of the field `GIT`.
const COMMIT: u32 = 2;

/// The longest name of a number.
const LONGEST_NAME: usize = 4096;
/// Names of histograms and images that are kept.
const MOST_MEDIA: usize = 1000;
/// Settings, and facts, of a run that are kept.
const MOST_SETTINGS: usize = 100_000;
/// From this number on, steps are not valid.
const STEPS: f64 = (1u64 << 62) as f64;

/// What a run says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// The user or team.
    Entity,
    /// The project.
    Project,
    /// The group of runs.
    Group,
    /// The type of the job.
    JobType,
    /// The name that is shown.
    Name,
    /// One of the tags.
    Tag,
    /// The commit of the code.
    Commit,
}

impl Fact {
    /// The field of a run.
    fn of(number: u32) -> Option<Fact> {
        Some(match number {
            2 => Fact::Entity,
            3 => Fact::Project,
            6 => Fact::Group,
            7 => Fact::JobType,
            8 => Fact::Name,
            10 => Fact::Tag,
            _ => return None,
        })
    }

    /// The name in Python.
    pub fn name(self) -> &'static str {
        match self {
            Fact::Entity => "entity",
            Fact::Project => "project",
            Fact::Group => "group",
            Fact::JobType => "job_type",
            Fact::Name => "name",
            Fact::Tag => "tag",
            Fact::Commit => "commit",
        }
    }
}

/// The numbers of one name.
#[derive(Debug, Default, PartialEq)]
pub struct Column {
    /// The rows that have one.
    pub rows: Vec<i64>,
    /// The numbers.
    pub values: Vec<f64>,
}

/// What was read since the last batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// The step of each row.
    pub steps: Vec<i64>,
    /// The time of each row in seconds since 1970; NaN if it has none.
    pub times: Vec<f64>,
    /// The columns with numbers.
    pub columns: Vec<(String, Column)>,
    /// Names in the configuration, joined by slashes, and their values in JSON.
    pub settings: Vec<(String, Vec<u8>)>,
    /// What the run says of itself.
    pub facts: Vec<(Fact, String)>,
    /// Whether the run has written that it ended.
    pub has_exit: bool,
}

/// Collects what records say.
#[derive(Debug)]
pub(super) struct History {
    batch: Batch,
    /// Columns in the order in which their names appeared. Writers repeat it in each row.
    columns: Vec<(String, Column)>,
    numbers: HashMap<String, usize>,
    most_names: usize,
    media: BTreeSet<String>,
    step: i64,
    /// How many settings and facts were kept.
    settings: usize,
    scratch: Scratch,
}

/// The numbers of one row.
#[derive(Debug, Default)]
struct Scratch {
    /// Their names, one after the other.
    names: Vec<u8>,
    /// Where each name ends, and its number.
    cells: Vec<(usize, f64)>,
}

/// An item of a history or a configuration, whose name is at the end of a buffer.
struct Item<'a> {
    first: &'a [u8],
    last: &'a [u8],
    depth: usize,
    value: Value<'a>,
}

enum Value<'a> {
    Nothing,
    Number(f64),
    Json(&'a [u8]),
}

impl History {
    pub(super) fn new(most_names: usize) -> Self {
        History {
            batch: Batch::default(),
            columns: Vec::new(),
            numbers: HashMap::new(),
            most_names,
            media: BTreeSet::new(),
            step: -1,
            settings: 0,
            scratch: Scratch::default(),
        }
    }

    /// Reads a record. What precedes damage counts.
    pub(super) fn read(&mut self, record: &[u8]) -> Result<()> {
        let mut fields = Fields::new(record, 0, "record");
        let (mut found, mut has_row) = (Ok(()), false);
        while let Some(field) = fields.step()? {
            let Wire::Len(_) = field.wire else { continue };
            let read = match field.number {
                HISTORY if has_row => Err(field.wrong(format_args!("more than one history"))),
                HISTORY => {
                    has_row = true;
                    self.row(field)
                }
                CONFIG => self.settings(field),
                RUN => self.run(field),
                EXIT => {
                    self.batch.has_exit = true;
                    Ok(())
                }
                _ => Ok(()),
            };
            found = found.and(read);
        }
        found
    }

    pub(super) fn take(&mut self) -> Batch {
        let batch = std::mem::take(&mut self.batch);
        let filled = self.columns.iter_mut().filter(|(_, column)| !column.rows.is_empty());
        let columns = filled.map(|(name, column)| (name.clone(), std::mem::take(column))).collect();
        Batch { columns, ..batch }
    }

    pub(super) fn media(&self) -> impl Iterator<Item = &str> {
        self.media.iter().map(String::as_str)
    }

    fn row(&mut self, field: Field<'_>) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.names.clear();
        scratch.cells.clear();
        let (mut step, mut time) = (f64::NAN, f64::NAN);
        let mut media: Vec<&[u8]> = Vec::new();
        let mut fields = field.message("history")?;
        let found = loop {
            let field = match fields.step() {
                Ok(Some(field)) if field.number == ITEM => field,
                Ok(Some(field)) => {
                    // An item has the same number, and counts.
                    if field.number == STEP && step.is_nan() {
                        step = step_of(field).unwrap_or(step);
                    }
                    continue;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let begin = scratch.names.len();
            let item = match field.message("item of the history").and_then(|item| parse(item, b'.', &mut scratch.names))
            {
                Ok(item) => item,
                Err(error) => break Err(error),
            };
            let name = &scratch.names[begin..];
            match item.value {
                _ if item.depth > 1 && item.last == b"_type" => media.push(item.first),
                Value::Json(text) => match number(text) {
                    _ if item.depth == 0 => {}
                    Some(number) if put(name, number, &mut step, &mut time) => {
                        scratch.cells.push((scratch.names.len(), number));
                        continue;
                    }
                    None if is_media(text) => media.push(item.first),
                    _ => {}
                },
                Value::Number(number) if item.depth > 0 && put(name, number, &mut step, &mut time) => {
                    scratch.cells.push((scratch.names.len(), number));
                    continue;
                }
                _ => {}
            }
            scratch.names.truncate(begin);
        };
        self.step = if step.is_finite() && step.abs() < STEPS { step as i64 } else { self.step.saturating_add(1) };
        let row = self.batch.steps.len() as i64;
        self.batch.steps.push(self.step);
        self.batch.times.push(time);
        let long = self.fill(row, &scratch, &media);
        for name in media {
            if self.media.len() < MOST_MEDIA {
                self.media.insert(String::from_utf8_lossy(&name[..name.len().min(LONGEST_NAME)]).into_owned());
            }
        }
        self.scratch = scratch;
        found.and(long)
    }

    /// Appends the numbers of a row to their columns, without those of media.
    fn fill(&mut self, row: i64, scratch: &Scratch, media: &[&[u8]]) -> Result<()> {
        let (mut begin, mut guess) = (0, 0);
        let mut found = Ok(());
        for (end, number) in &scratch.cells {
            let name = &scratch.names[begin..*end];
            begin = *end;
            if media.iter().any(|one| name.strip_prefix(*one).is_some_and(|rest| rest.first() == Some(&b'.'))) {
                continue;
            }
            let at = match self.columns.get(guess) {
                Some((known, _)) if known.as_bytes() == name => Some(guess),
                _ if name.len() > LONGEST_NAME => {
                    let what = format!("a name of {} bytes", name.len());
                    found = Err(Error::Corrupt { location: Location::memory(0), what });
                    None
                }
                _ => self.column(name),
            };
            let Some(at) = at else { continue };
            guess = at + 1;
            let Some((_, column)) = self.columns.get_mut(at) else { continue };
            if column.rows.last() == Some(&row) {
                column.values.pop(); // the last number of a name counts
            } else {
                column.rows.push(row);
            }
            column.values.push(*number);
        }
        found
    }

    /// The number of a column, which is new unless there are too many.
    fn column(&mut self, name: &[u8]) -> Option<usize> {
        let name = String::from_utf8_lossy(name);
        if let Some(at) = self.numbers.get(name.as_ref()) {
            return Some(*at);
        }
        if self.columns.len() >= self.most_names {
            return None;
        }
        let at = self.columns.len();
        self.numbers.insert(name.clone().into_owned(), at);
        self.columns.push((name.into_owned(), Column::default()));
        Some(at)
    }

    fn settings(&mut self, field: Field<'_>) -> Result<()> {
        let mut fields = field.message("configuration")?;
        while let Some(field) = fields.step()? {
            if field.number != ITEM {
                continue;
            }
            let mut name = Vec::new();
            let item = parse(field.message("item of the configuration")?, b'/', &mut name)?;
            if let Value::Json(text) = item.value
                && item.depth > 0
                && item.first != b"_wandb"
                && self.keeps(field)?
            {
                self.batch.settings.push((String::from_utf8_lossy(&name).into_owned(), text.to_vec()));
            }
        }
        Ok(())
    }

    /// Counts a setting or fact. Fails if there are too many.
    fn keeps(&mut self, field: Field<'_>) -> Result<bool> {
        self.settings += 1;
        match self.settings {
            ..=MOST_SETTINGS => Ok(true),
            _ => Err(field.wrong(format_args!("more than {MOST_SETTINGS} settings"))),
        }
    }

    fn run(&mut self, field: Field<'_>) -> Result<()> {
        let mut fields = field.message("run")?;
        while let Some(field) = fields.step()? {
            let Wire::Len(content) = field.wire else { continue };
            let (fact, text) = match field.number {
                RUN_CONFIG => {
                    self.settings(field)?;
                    continue;
                }
                GIT => (Some(Fact::Commit), commit(field)?),
                number => (Fact::of(number), content),
            };
            if let Some(fact) = fact
                && !text.is_empty()
                && self.keeps(field)?
            {
                self.batch.facts.push((fact, String::from_utf8_lossy(text).into_owned()));
            }
        }
        Ok(())
    }
}

/// The step of a row. Zero is not written.
fn step_of(field: Field<'_>) -> Result<f64> {
    let mut fields = field.message("step")?;
    let mut found = 0;
    while let Some(field) = fields.step()? {
        if field.number == STEP_NUMBER {
            found = field.int()?.cast_signed();
        }
    }
    Ok(found as f64)
}

/// The commit in the description of a repository.
fn commit<'a>(field: Field<'a>) -> Result<&'a [u8]> {
    let mut fields = field.message("repository")?;
    let mut found: &[u8] = b"";
    while let Some(field) = fields.step()? {
        if field.number == COMMIT {
            found = field.bytes()?;
        }
    }
    Ok(found)
}

/// Appends the name of an item to a buffer, its parts joined by a separator.
fn parse<'a>(mut fields: Fields<'a>, separator: u8, name: &mut Vec<u8>) -> Result<Item<'a>> {
    let mut item = Item { first: b"", last: b"", depth: 0, value: Value::Nothing };
    while let Some(field) = fields.step()? {
        match (field.number, field.wire) {
            (KEY | NESTED_KEY, Wire::Len(key)) => {
                if item.depth == 0 {
                    item.first = key;
                } else {
                    name.push(separator);
                }
                name.extend_from_slice(key);
                item.last = key;
                item.depth += 1;
            }
            (INTEGER, Wire::Varint(value)) => item.value = Value::Number(value.cast_signed() as f64),
            (NUMBER, Wire::Fixed64(bits)) => item.value = Value::Number(f64::from_bits(bits)),
            (VALUE_JSON, Wire::Len(text)) => item.value = Value::Json(text),
            _ => {}
        }
    }
    Ok(item)
}

/// Whether a number belongs to a column. Step and time are taken, and other names of W&B left out.
fn put(name: &[u8], number: f64, step: &mut f64, time: &mut f64) -> bool {
    match name {
        b"_step" => *step = number,
        b"_timestamp" => *time = number,
        _ => return name.first() != Some(&b'_'),
    }
    false
}

/// The number that a JSON text spells. W&B writes those that are not finite with or without quotes.
fn number(text: &[u8]) -> Option<f64> {
    match text.trim_ascii_end() {
        b"NaN" | b"\"NaN\"" => Some(f64::NAN),
        b"Infinity" | b"\"Infinity\"" => Some(f64::INFINITY),
        b"-Infinity" | b"\"-Infinity\"" => Some(f64::NEG_INFINITY),
        text @ [b'-' | b'0'..=b'9', ..] => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// Whether a JSON text is an object with a type, as of a histogram.
fn is_media(text: &[u8]) -> bool {
    const TYPE: &[u8] = b"\"_type\"";
    text.first() == Some(&b'{') && text.windows(TYPE.len()).any(|part| part == TYPE)
}
