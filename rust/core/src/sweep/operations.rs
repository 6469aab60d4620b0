//! Operations over many records: reductions, values, heads and verification.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use super::{Cells, Column, Failed, Options, Rows};
use crate::checked::{self, Checksums, HEAD};
use crate::error::{Error, Location, Result};
use crate::reduce::{Op, OpSet, Reductions, Scalar, reduce_some};
use crate::source::Source;
use crate::tensor::{DType, TensorView};

/// The result of [`reductions`].
pub struct Reduced {
    /// One column per requested reduction.
    pub columns: Vec<Column>,
    /// Counts of all, NaN, +inf, -inf and zero elements; -1 for rows with stored reductions only.
    pub counts: Option<[Vec<i64>; 5]>,
    /// The failed rows.
    pub failed: Failed,
}

/// Computes the reductions of every row, or reads stored ones.
pub fn reductions(
    rows: &Rows,
    source: &dyn Source,
    options: &Options<'_>,
    operations: &[(Op, bool)],
    counts: bool,
) -> Result<Reduced> {
    let cells = Cells::new(rows.rows.len(), operations.len());
    let size = if counts { rows.rows.len() } else { 0 };
    let counted: [Vec<AtomicI64>; 5] = std::array::from_fn(|_| (0..size).map(|_| AtomicI64::new(-1)).collect());
    let failed = rows.tensors(source, options, &|at, tensor, _| {
        let job = &rows.jobs[at];
        let row = job.row as usize;
        if let Some(stored) = job.kind.as_reduction() {
            let number = single(tensor)?;
            let columns = operations.iter().enumerate().filter(|(_, one)| **one == stored);
            columns.for_each(|(column, _)| cells.set(row, column, &number));
            return Ok(());
        }
        let reduced = reduce_tensor(tensor, job.requested)?;
        for (column, (op, abs)) in operations.iter().enumerate().filter(|(_, (op, abs))| job.requested.has(*op, *abs)) {
            if let Some(number) = reduced.try_get(*op, *abs) {
                cells.set(row, column, &number);
            }
        }
        if counts {
            let all = &reduced.counts;
            let numbers = [all.n, all.nan, all.pos_inf, all.neg_inf, all.zeros];
            counted.iter().zip(numbers).for_each(|(column, n)| column[row].store(n as i64, Ordering::Relaxed));
        }
        Ok(())
    })?;
    let counts = counts.then(|| counted.map(|column| column.into_iter().map(AtomicI64::into_inner).collect()));
    Ok(Reduced { columns: cells.finish(), counts, failed })
}

fn reduce_tensor(tensor: &TensorView<'_>, requested: OpSet) -> Result<Reductions> {
    match tensor.data.bytes() {
        Some(bytes) => reduce_some(tensor.dtype, bytes, requested),
        None => {
            Err(Error::Unsupported { location: Location::memory(0), what: "string tensors have no reductions".into() })
        }
    }
}

/// The number in a record with one element.
fn single(tensor: &TensorView<'_>) -> Result<Scalar> {
    let (dtype, bytes) = (tensor.dtype, tensor.data.bytes());
    match bytes {
        Some(bytes) if bytes.len() == dtype.item_size() => Ok(Scalar::from_raw(dtype, bytes)),
        _ => {
            let what = format!("invalid stored reduction of shape {:?} and dtype {}", tensor.shape, dtype.name());
            Err(Error::Unsupported { location: Location::memory(0), what })
        }
    }
}

/// The result of [`verify`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Scalar of valid records.
    pub records: u64,
    /// Their total size.
    pub bytes: u64,
    /// Scalar of records with a checksum as footer.
    pub by_footer: u64,
    /// Scalar of records with a checksum in the index.
    pub by_index: u64,
    /// Scalar of records without any checksum.
    pub unverifiable: u64,
}

/// Verifies every record: framing, checksums, name, dtype and shape.
pub fn verify(rows: &Rows, source: &dyn Source, options: &Options<'_>) -> Result<(Verified, Failed)> {
    let found: Mutex<Verified> = Mutex::default();
    let failed = rows.records(source, options, &|at, bytes| {
        let expected = rows.expected(at);
        let (record, Checksums { by_footer, by_index }) = checked::parse(bytes, &expected)?;
        checked::verify(&record, &expected)?;
        checked::tensor(&record, &expected)?;
        let mut found = found.lock();
        found.records += 1;
        found.bytes += bytes.len() as u64;
        found.by_footer += u64::from(by_footer);
        found.by_index += u64::from(by_index);
        found.unverifiable += u64::from(!by_footer && !by_index);
        Ok(())
    })?;
    Ok((found.into_inner(), failed))
}

/// Dtype and shape of a tensor.
pub type Head = (DType, Vec<u64>);

/// Reads dtype and shape of every row; `None` for failed ones. Reads the beginning of each record first, and the whole
/// record only where that is not enough.
pub fn heads(rows: &mut Rows, source: &dyn Source, options: &Options<'_>) -> Result<(Vec<Option<Head>>, Failed)> {
    let found: Mutex<Vec<Option<Head>>> = Mutex::new(vec![None; rows.rows.len()]);
    let longer: Mutex<Vec<usize>> = Mutex::default();
    rows.plan.items.iter_mut().for_each(|item| item.length = item.length.min(HEAD));
    let mut failed = rows.records(source, options, &|at, bytes| match checked::head(bytes, &rows.expected(at)) {
        Err(Error::Truncated { .. }) if (bytes.len() as u64) < rows.jobs[at].length => {
            longer.lock().push(at);
            Ok(())
        }
        head => {
            found.lock()[rows.jobs[at].row as usize] = Some(head?);
            Ok(())
        }
    })?;
    let longer = longer.into_inner();
    if !longer.is_empty() {
        let mut rest = rows.part(&longer);
        rest.plan.items.iter_mut().zip(&rest.jobs).for_each(|(item, job)| item.length = job.length);
        failed.extend(rest.records(source, options, &|at, bytes| {
            found.lock()[rest.jobs[at].row as usize] = Some(checked::head(bytes, &rest.expected(at))?);
            Ok(())
        })?);
        failed.sort_by_key(|(row, _)| *row);
    }
    rows.plan.items.iter_mut().zip(&rows.jobs).for_each(|(item, job)| item.length = job.length);
    Ok((found.into_inner(), failed))
}

/// Dtype and shape of the first row, if its head can be read.
pub fn first_head(rows: &Rows, source: &dyn Source) -> Option<Head> {
    let mut first = rows.part(&[0]);
    let (heads, _) = heads(&mut first, source, &Options::default()).ok()?;
    heads.into_iter().next().flatten()
}

/// Copies the values of all rows with dtype and shape `like` into `stack`, which has room for one per row. Returns the
/// records of all other values, and the failed rows.
pub fn stack(
    rows: &Rows,
    like: &Head,
    stack: &mut [u8],
    source: &dyn Source,
    options: &Options<'_>,
) -> Result<(HashMap<u32, Vec<u8>>, Failed)> {
    let each = stack.len().checked_div(rows.rows.len()).unwrap_or(0);
    let slots: Vec<Mutex<&mut [u8]>> =
        if each > 0 { stack.chunks_exact_mut(each).map(Mutex::new).collect() } else { Vec::new() };
    let others: Mutex<HashMap<u32, Vec<u8>>> = Mutex::default();
    let failed = rows.tensors(source, options, &|at, tensor, record| {
        let row = rows.jobs[at].row;
        let slot = slots.get(row as usize).filter(|_| tensor.dtype == like.0 && tensor.shape == like.1);
        match (slot, tensor.data.bytes()) {
            (Some(slot), Some(content)) if content.len() == each => slot.lock().copy_from_slice(content),
            _ => drop(others.lock().insert(row, record.to_vec())),
        }
        Ok(())
    })?;
    Ok((others.into_inner(), failed))
}
