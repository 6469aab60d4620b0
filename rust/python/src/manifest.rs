//! Bindings of the compacted index.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use smdwidgets_core::load;
use smdwidgets_core::manifest::{Folder, Hash, Root, RootFolder};
use smdwidgets_core::step::Step;

use crate::errors::to_python;

/// A folder without its keys: number, size, and hashes of its content, ETags and modification times.
type Description = (Step, usize, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// The root file of a compacted index.
#[pyclass(frozen, module = "smdwidgets._core")]
pub struct ManifestRoot(Root);

#[pymethods]
impl ManifestRoot {
    #[new]
    fn new(py: Python<'_>, file: &str, data: Bound<'_, PyBytes>) -> PyResult<ManifestRoot> {
        let data = data.as_bytes();
        py.detach(|| Root::parse(data, file)).map(ManifestRoot).map_err(|error| to_python(py, &error))
    }

    fn folders(&self) -> Vec<Description> {
        let of = |folder: &RootFolder| {
            let times = folder.times.map(|hash| hash.to_vec());
            (folder.number, folder.size, folder.hash.to_vec(), folder.etags.to_vec(), times)
        };
        self.0.folders.iter().map(of).collect()
    }

    fn keys(&self, at: usize) -> PyResult<Vec<String>> {
        let folder = self.0.folders.get(at).ok_or_else(|| PyValueError::new_err("no such folder"))?;
        Ok(self.0.keys(folder).collect())
    }
}

/// Encodes the root file of a compacted index.
#[pyfunction]
pub fn manifest_root<'py>(py: Python<'py>, folders: Vec<(Description, Vec<String>)>) -> PyResult<Bound<'py, PyBytes>> {
    let hash = |bytes: Vec<u8>| Hash::try_from(bytes).map_err(|_| PyValueError::new_err("a hash has 32 bytes"));
    let mut root = Root::default();
    for ((number, size, content, etags, times), keys) in folders {
        let (content, etags, times) = (hash(content)?, hash(etags)?, times.map(hash).transpose()?);
        let folder = RootFolder { number, size, hash: content, etags, times, files: Vec::new() };
        root.add(folder, keys.iter().map(String::as_str)).map_err(|error| to_python(py, &error))?;
    }
    let bytes = py.detach(|| root.to_bytes()).map_err(|error| to_python(py, &error))?;
    Ok(PyBytes::new(py, &bytes))
}

/// Encodes a folder file of a compacted index.
#[pyfunction]
#[pyo3(signature = (files, threads = None))]
pub fn manifest_folder<'py>(
    py: Python<'py>,
    files: Vec<(String, Bound<'py, PyBytes>)>,
    threads: Option<usize>,
) -> PyResult<Bound<'py, PyBytes>> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(key, data)| (key.as_str(), data.as_bytes())).collect();
    let bytes = py.detach(|| load::compacted(&files, threads)).map_err(|error| to_python(py, &error))?;
    Ok(PyBytes::new(py, &bytes))
}

/// Compares a folder file with index files.
#[pyfunction]
pub fn manifest_differences(
    py: Python<'_>,
    file: &str,
    data: Bound<'_, PyBytes>,
    files: Vec<(String, Bound<'_, PyBytes>)>,
) -> PyResult<Vec<(String, &'static str)>> {
    let data = data.as_bytes();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(key, data)| (key.as_str(), data.as_bytes())).collect();
    py.detach(|| load::differences(&Folder::parse(data, file)?, &files)).map_err(|error| to_python(py, &error))
}
