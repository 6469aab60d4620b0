//! The messages of a run: rows of its history and samples of the system as columns, places of histograms, configuration,
//! summary and other facts as text.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::error::{Error, Location, Result};
use crate::proto::{Field, Fields, Wire};

/// Fields of a record.
const HISTORY: u32 = 2;
const SUMMARY: u32 = 3;
const CONFIG: u32 = 5;
const STATS: u32 = 7;
const RUN: u32 = 17;
const EXIT: u32 = 18;
/// The field of items in a history and a configuration.
const ITEM: u32 = 1;
/// The field of a history's step, and that of its number.
const STEP: u32 = 2;
const STEP_NUMBER: u32 = 1;
/// Fields of a summary: changed and removed items.
const UPDATE: u32 = 1;
const REMOVE: u32 = 2;
/// Fields of a sample of the system: its time in seconds and nanoseconds, and its items.
const TIME: u32 = 2;
const SECONDS: u32 = 1;
const NANOSECONDS: u32 = 2;
const SAMPLE: u32 = 3;
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
/// The longest value of a summary that is kept.
const LONGEST_SUMMARY: usize = 4096;
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
    /// What the user wrote about it.
    Notes,
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
            9 => Fact::Notes,
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
            Fact::Notes => "notes",
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

/// Rows as columns.
#[derive(Debug, Default)]
pub struct Rows {
    /// The step of each row.
    pub steps: Vec<i64>,
    /// The time of each row in seconds since 1970; NaN if it has none.
    pub times: Vec<f64>,
    /// The columns with numbers.
    pub columns: Vec<(String, Column)>,
}

/// The histograms of one name.
#[derive(Debug, Default, PartialEq)]
pub struct Places {
    /// The rows of the history that have one.
    pub rows: Vec<i64>,
    /// Offset in the file, and length, of the record of each.
    pub records: Vec<(u64, u64)>,
}

/// What was read since the last batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// The history.
    pub history: Rows,
    /// Samples of the system. Their step is that of the row before.
    pub system: Rows,
    /// Where the history has histograms.
    pub histograms: Vec<(String, Places)>,
    /// Changed names of the summary, joined by dots, and their values in JSON; `None` if they were removed.
    pub summary: Vec<(String, Option<Vec<u8>>)>,
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
    rows: Table,
    system: Table,
    histograms: Names<Places>,
    /// What the summary says since the last batch.
    summary: HashMap<Vec<u8>, Option<Vec<u8>>>,
    most_names: usize,
    media: BTreeSet<String>,
    step: i64,
    /// Settings, facts, and whether the run has ended.
    batch: Batch,
    /// How many settings and facts were kept.
    settings: usize,
    scratch: Scratch,
}

/// Things with a name, in the order in which the names appeared.
#[derive(Debug)]
struct Names<T> {
    all: Vec<(String, T)>,
    numbers: HashMap<String, usize>,
    most: usize,
}

impl<T: Default> Names<T> {
    fn new(most: usize) -> Self {
        Names { all: Vec::new(), numbers: HashMap::new(), most }
    }

    /// The number of a name, which is new unless there are too many.
    fn number(&mut self, name: &[u8]) -> Option<usize> {
        let name = String::from_utf8_lossy(name);
        if let Some(at) = self.numbers.get(name.as_ref()) {
            return Some(*at);
        }
        if self.all.len() >= self.most {
            return None;
        }
        let at = self.all.len();
        self.numbers.insert(name.clone().into_owned(), at);
        self.all.push((name.into_owned(), T::default()));
        Some(at)
    }

    /// What is not empty since the last call.
    fn take(&mut self, is_empty: fn(&T) -> bool) -> Vec<(String, T)> {
        let filled = self.all.iter_mut().filter(|(_, one)| !is_empty(one));
        filled.map(|(name, one)| (name.clone(), std::mem::take(one))).collect()
    }
}

/// Rows that become columns. Writers repeat the order of names in each row.
#[derive(Debug)]
struct Table {
    steps: Vec<i64>,
    times: Vec<f64>,
    columns: Names<Column>,
}

impl Table {
    fn new(most_names: usize) -> Self {
        Table { steps: Vec::new(), times: Vec::new(), columns: Names::new(most_names) }
    }

    /// Appends the numbers of a row to their columns, without those of media.
    fn append(&mut self, step: i64, time: f64, scratch: &Scratch) -> Result<()> {
        let row = self.steps.len() as i64;
        self.steps.push(step);
        self.times.push(time);
        let (mut begin, mut guess) = (0, 0);
        let mut found = Ok(());
        for (end, number) in &scratch.cells {
            let name = &scratch.names[begin..*end];
            begin = *end;
            if scratch
                .media
                .iter()
                .any(|one| name.strip_prefix(&one[..]).is_some_and(|rest| rest.first() == Some(&b'.')))
            {
                continue;
            }
            let at = match self.columns.all.get(guess) {
                Some((known, _)) if known.as_bytes() == name => Some(guess),
                _ if name.len() > LONGEST_NAME => {
                    found = Err(too_long(name));
                    None
                }
                _ => self.columns.number(name),
            };
            let Some(at) = at else { continue };
            guess = at + 1;
            let Some((_, column)) = self.columns.all.get_mut(at) else { continue };
            if column.rows.last() == Some(&row) {
                column.values.pop(); // the last number of a name counts
            } else {
                column.rows.push(row);
            }
            column.values.push(*number);
        }
        found
    }

    fn take(&mut self) -> Rows {
        Rows {
            steps: std::mem::take(&mut self.steps),
            times: std::mem::take(&mut self.times),
            columns: self.columns.take(|column| column.rows.is_empty()),
        }
    }
}

fn too_long(name: &[u8]) -> Error {
    Error::Corrupt { location: Location::memory(0), what: format!("a name of {} bytes", name.len()) }
}

/// The numbers of one row.
#[derive(Debug, Default)]
struct Scratch {
    /// Their names, one after the other.
    names: Vec<u8>,
    /// Where each name ends, and its number.
    cells: Vec<(usize, f64)>,
    /// Names of histograms, images and tables.
    media: Vec<Vec<u8>>,
    /// Those of histograms.
    histograms: Vec<Vec<u8>>,
}

impl Scratch {
    fn clear(&mut self) {
        self.names.clear();
        self.cells.clear();
        self.media.clear();
        self.histograms.clear();
    }

    /// Notes a name whose value has this type.
    fn note(&mut self, name: &[u8], is_histogram: bool) {
        if is_histogram {
            self.histograms.push(name.to_vec());
        }
        self.media.push(name.to_vec());
    }
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
            rows: Table::new(most_names),
            system: Table::new(most_names),
            histograms: Names::new(most_names),
            summary: HashMap::new(),
            most_names,
            media: BTreeSet::new(),
            step: -1,
            batch: Batch::default(),
            settings: 0,
            scratch: Scratch::default(),
        }
    }

    /// Reads a record with its offset and length in the file. What precedes damage counts.
    pub(super) fn read(&mut self, record: &[u8], place: (u64, u64)) -> Result<()> {
        let mut fields = Fields::new(record, 0, "record");
        let (mut found, mut has_row) = (Ok(()), false);
        while let Some(field) = fields.step()? {
            let Wire::Len(_) = field.wire else { continue };
            let read = match field.number {
                HISTORY | STATS if has_row => Err(field.wrong(format_args!("more than one history"))),
                HISTORY => {
                    has_row = true;
                    self.row(field, place)
                }
                STATS => {
                    has_row = true;
                    self.sample(field)
                }
                SUMMARY => self.summary(field),
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
        let text = |name: Vec<u8>| String::from_utf8_lossy(&name).into_owned();
        let mut summary: Vec<_> = self.summary.drain().map(|(name, value)| (text(name), value)).collect();
        summary.sort();
        Batch {
            history: self.rows.take(),
            system: self.system.take(),
            histograms: self.histograms.take(|places| places.rows.is_empty()),
            summary,
            ..std::mem::take(&mut self.batch)
        }
    }

    pub(super) fn media(&self) -> impl Iterator<Item = &str> {
        self.media.iter().map(String::as_str)
    }

    fn row(&mut self, field: Field<'_>, place: (u64, u64)) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let (mut step, mut time) = (f64::NAN, f64::NAN);
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
            if let Err(error) = cell(field, &mut scratch, |name, number| put(name, number, &mut step, &mut time)) {
                break Err(error);
            }
        };
        self.step = if step.is_finite() && step.abs() < STEPS { step as i64 } else { self.step.saturating_add(1) };
        let row = self.rows.steps.len() as i64;
        let long = self.rows.append(self.step, time, &scratch);
        for name in &scratch.histograms {
            let at = if name.len() > LONGEST_NAME { None } else { self.histograms.number(name) };
            if let Some((_, places)) = at.and_then(|at| self.histograms.all.get_mut(at))
                && places.rows.last() != Some(&row)
            {
                places.rows.push(row);
                places.records.push(place);
            }
        }
        for name in &scratch.media {
            if self.media.len() < MOST_MEDIA && !scratch.histograms.contains(name) {
                self.media.insert(String::from_utf8_lossy(&name[..name.len().min(LONGEST_NAME)]).into_owned());
            }
        }
        self.scratch = scratch;
        found.and(long)
    }

    /// Reads a sample of the system, at the step of the row before.
    fn sample(&mut self, field: Field<'_>) -> Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let mut time = f64::NAN;
        let mut fields = field.message("sample of the system")?;
        let found = loop {
            let read = match fields.step() {
                Ok(Some(field)) if field.number == SAMPLE => cell(field, &mut scratch, |name, _| !name.is_empty()),
                Ok(Some(field)) if field.number == TIME => time_of(field).map(|one| time = one),
                Ok(Some(_)) => Ok(()),
                Ok(None) => break Ok(()),
                Err(error) => Err(error),
            };
            if read.is_err() {
                break read;
            }
        };
        let long = self.system.append(self.step.max(0), time, &scratch);
        self.scratch = scratch;
        found.and(long)
    }

    /// Notes what a summary changes.
    fn summary(&mut self, field: Field<'_>) -> Result<()> {
        let mut fields = field.message("summary")?;
        let mut name = Vec::new();
        while let Some(field) = fields.step()? {
            if field.number != UPDATE && field.number != REMOVE {
                continue;
            }
            name.clear();
            let item = parse(field.message("item of the summary")?, b'.', &mut name)?;
            let value = match item.value {
                _ if item.depth == 0 || name.first() == Some(&b'_') || name.len() > LONGEST_NAME => continue,
                Value::Json(text) if field.number == UPDATE && text.len() <= LONGEST_SUMMARY => Some(text.to_vec()),
                _ => None,
            };
            if self.summary.len() < self.most_names || self.summary.contains_key(&name) {
                self.summary.insert(name.clone(), value);
            }
        }
        Ok(())
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

/// Appends the number of an item to those of a row, if it has one that belongs to a column.
fn cell(field: Field<'_>, scratch: &mut Scratch, belongs: impl FnOnce(&[u8], f64) -> bool) -> Result<()> {
    let begin = scratch.names.len();
    let item = parse(field.message("item")?, b'.', &mut scratch.names)?;
    let end = scratch.names.len();
    let number = match item.value {
        _ if item.depth > 1 && item.last == b"_type" => {
            let name = scratch.names[begin..end - b"._type".len()].to_vec();
            scratch.note(&name, matches!(item.value, Value::Json(HISTOGRAM)));
            None
        }
        Value::Json(text) => number(text).or_else(|| {
            if is_media(text) {
                let name = scratch.names[begin..end].to_vec();
                scratch.note(&name, is_histogram(text));
            }
            None
        }),
        Value::Number(number) => Some(number),
        Value::Nothing => None,
    };
    match number {
        Some(number) if item.depth > 0 && belongs(&scratch.names[begin..end], number) => {
            scratch.cells.push((end, number));
        }
        _ => scratch.names.truncate(begin),
    }
    Ok(())
}

/// The parts of a value in a record of history: the rest of their names, and their JSON.
pub(super) fn parts(record: &[u8], wanted: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut fields = Fields::new(record, 0, "record");
    let mut name = Vec::new();
    while let Some(field) = fields.step()? {
        if field.number != HISTORY {
            continue;
        }
        let mut items = field.message("history")?;
        while let Some(field) = items.step()? {
            if field.number != ITEM {
                continue;
            }
            name.clear();
            let item = parse(field.message("item")?, b'.', &mut name)?;
            let text = String::from_utf8_lossy(&name);
            if let Value::Json(value) = item.value
                && let Some(rest) = text.strip_prefix(wanted)
                && (rest.is_empty() || rest.starts_with('.'))
            {
                found.push((rest.trim_start_matches('.').to_owned(), value.to_vec()));
            }
        }
    }
    Ok(found)
}

/// The time of a sample in seconds since 1970.
fn time_of(field: Field<'_>) -> Result<f64> {
    let mut fields = field.message("time")?;
    let (mut seconds, mut nanoseconds) = (0.0, 0.0);
    while let Some(field) = fields.step()? {
        match field.number {
            SECONDS => seconds = field.int()?.cast_signed() as f64,
            NANOSECONDS => nanoseconds = field.int()?.cast_signed() as f64,
            _ => {}
        }
    }
    Ok(seconds + nanoseconds / 1e9)
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
    text.first() == Some(&b'{') && text.windows(TYPE.len()).any(|part| part == TYPE)
}

/// The name of a type in JSON.
const TYPE: &[u8] = b"\"_type\"";
/// The type of a histogram in JSON.
const HISTOGRAM: &[u8] = b"\"histogram\"";

/// Whether a JSON text is an object with the type of a histogram.
fn is_histogram(text: &[u8]) -> bool {
    text.windows(TYPE.len()).enumerate().any(|(at, part)| {
        part == TYPE
            && text[at + TYPE.len()..]
                .trim_ascii_start()
                .strip_prefix(b":")
                .is_some_and(|value| value.trim_ascii_start().starts_with(HISTOGRAM))
    })
}
