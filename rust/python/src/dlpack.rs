//! Reads tensors of the CPU where they are, by the exchange interface of DLPack.
//!
//! The class of a tensor has this interface in its attribute `__dlpack_c_exchange_api__`. To ask the tensor itself, by its
//! methods of Python, takes ten times as long.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

const NAME: &CStr = c"dlpack_exchange_api";
/// The major version of the layouts below.
const VERSION: u32 = 1;
const CPU: i32 = 1;
const FLOAT32: DataType = DataType { code: 2, bits: 32, lanes: 1 };

#[repr(C)]
struct Device {
    kind: i32,
    _number: i32,
}

#[derive(PartialEq, Eq)]
#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// What the interface says of a tensor.
#[repr(C)]
struct Description {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// The begin of the interface's table of functions.
#[repr(C)]
struct Table {
    major: u32,
    _minor: u32,
    _previous: *const c_void,
    _allocate: *const c_void,
    _manage: *const c_void,
    _to_python: *const c_void,
    describe: Option<unsafe extern "C" fn(*mut c_void, *mut Description) -> c_int>,
}

/// The tensors of a class.
pub struct Tensors<'py> {
    class: Bound<'py, PyAny>,
    table: NonNull<Table>,
}

impl<'py> Tensors<'py> {
    /// The tensors of a class, or None if it has no such interface.
    pub fn of(class: Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let capsule = match class.getattr(intern!(class.py(), "__dlpack_c_exchange_api__")) {
            Ok(capsule) => capsule,
            Err(error) if error.is_instance_of::<PyAttributeError>(class.py()) => return Ok(None),
            Err(error) => return Err(error),
        };
        let table = capsule.cast::<PyCapsule>()?.pointer_checked(Some(NAME))?.cast::<Table>();
        // SAFETY: a capsule of this name has the address of such a table, which lives as long as the process. Its version
        // stands first in every one of them.
        let is_known = unsafe { table.as_ref() }.major == VERSION;
        Ok(is_known.then_some(Tensors { class, table }))
    }

    /// The elements of a contiguous tensor of float32 on the CPU, as bytes.
    ///
    /// None if the tensor is another one, or of a class that is derived from this one, or has lost its memory.
    ///
    /// # Safety
    ///
    /// Nothing may change the tensor or give its memory back for as long as the bytes are used, and its memory is as
    /// large as its shape says.
    pub unsafe fn float32<'a>(&self, tensor: &'a Bound<'py, PyAny>) -> Option<&'a [u8]> {
        if !tensor.get_type().is(&self.class) {
            return None;
        }
        // SAFETY: `of` has looked at the table.
        let describe = unsafe { self.table.as_ref() }.describe?;
        let mut one = Description {
            data: ptr::null_mut(),
            device: Device { kind: 0, _number: 0 },
            dimensions: 0,
            dtype: DataType { code: 0, bits: 0, lanes: 0 },
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        // SAFETY: the object has the class of the table, the GIL is held, and there is room for what is written.
        if unsafe { describe(tensor.as_ptr().cast(), &raw mut one) } != 0 {
            drop(PyErr::take(tensor.py())); // such as that of a sparse tensor
            return None;
        }
        if one.device.kind != CPU || one.dtype != FLOAT32 {
            return None;
        }
        // SAFETY: the tensor, which is alive, has so many dimensions.
        let count = unsafe { count(&one) }?;
        let length = count.checked_mul(size_of::<f32>()).filter(|length| isize::try_from(*length).is_ok())?;
        if length == 0 {
            return Some(&[]);
        }
        let data = NonNull::new(one.data.cast::<u8>())?; // memory that was freed has no address
        // SAFETY: a contiguous tensor has its elements there one after the other. The rest is up to the caller.
        Some(unsafe { std::slice::from_raw_parts(data.as_ptr().add(usize::try_from(one.byte_offset).ok()?), length) })
    }
}

/// The number of elements of a tensor, or None if it is not contiguous.
///
/// # Safety
///
/// Shape and strides have as many numbers as the tensor has dimensions, or strides are null.
unsafe fn count(one: &Description) -> Option<usize> {
    let dimensions = usize::try_from(one.dimensions).ok()?;
    let (mut expected, mut is_contiguous) = (1_i64, true);
    for place in (0..dimensions).rev() {
        // SAFETY: see above.
        let length = unsafe { *one.shape.add(place) };
        if !one.strides.is_null() && length != 1 {
            // SAFETY: see above.
            is_contiguous &= unsafe { *one.strides.add(place) } == expected;
        }
        expected = expected.checked_mul(length)?;
    }
    (is_contiguous || expected == 0).then(|| usize::try_from(expected).ok()).flatten()
}
