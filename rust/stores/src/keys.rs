//! Keys as the store has them, unchanged.
//!
//! `object_store` normalizes the keys of listings: it drops a final "/" and refuses a whole page for one key with an
//! empty component. So listings are given to it with encoded keys, which are decoded afterwards.

use object_store::path::{Path, PathPart};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use quick_xml::escape::unescape;

/// Elements of listings that hold the key of an object or a folder: of S3 and Google Cloud Storage, and of Azure.
const ELEMENTS: [(&str, &str); 3] = [("<Key>", "</Key>"), ("<Prefix>", "</Prefix>"), ("<Name>", "</Name>")];
/// Begins an encoded key, so that none is empty or `..`.
const MARK: char = 'k';
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The path of a key.
pub fn path(key: &str) -> Result<Path, String> {
    if key.is_empty() || key.starts_with('/') || key.ends_with('/') {
        return Err("a key that is empty, or begins or ends with '/', cannot be read or written".to_owned());
    }
    key.split('/').try_fold(Path::ROOT, |path, component| match PathPart::parse(component) {
        Ok(part) => Ok(path.join(part)),
        Err(_) => Err("a key with a component '.' or '..', or with a control character, cannot be read".to_owned()),
    })
}

/// Encodes the keys of a listing.
pub fn encode(listing: &str) -> String {
    let mut encoded = String::with_capacity(listing.len() * 5 / 4);
    let mut rest = listing;
    while let Some((at, (opening, closing))) =
        ELEMENTS.iter().filter_map(|element| Some((rest.find(element.0)?, *element))).min()
    {
        let (before, after) = rest.split_at(at + opening.len());
        encoded.push_str(before);
        let Some(end) = after.find(closing) else {
            rest = after;
            break;
        };
        let (text, after) = after.split_at(end);
        let key = unescape(text).unwrap_or(text.into());
        encoded.push(MARK);
        encoded.extend(utf8_percent_encode(&key, ENCODED));
        rest = after;
    }
    encoded.push_str(rest);
    encoded
}

/// The key of an object in an encoded listing.
pub fn decode(location: &Path) -> String {
    let encoded = location.as_ref();
    percent_decode_str(encoded.strip_prefix(MARK).unwrap_or(encoded)).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_the_keys() {
        for key in ["a", "a/b", "a//b", "a b+c%20d~", "ü/日本", "a\\b", "a*?[]{}^`\"<>#|", ".a/..b", " a "] {
            assert_eq!(path(key).unwrap().as_ref(), key);
        }
        for key in ["", "/", "/a", "a/", "a/../b", "./a", "a/.", "a\nb", "a\0"] {
            assert!(path(key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn listed_keys_come_back() {
        for key in ["a", "a/", "/a", "a//b", "..", "a/../b", "", "a%2Fb", "ü & <Key>", " a ", "line\nend", "a+b"] {
            let escaped = quick_xml::escape::escape(key);
            let listing = format!("<R><Name>bucket</Name><Contents><Key>{escaped}</Key><Size>1</Size></Contents></R>");
            let encoded = encode(&listing);
            let (_, after) = encoded.split_once("<Key>").unwrap();
            let (text, after) = after.split_once("</Key>").unwrap();
            assert_eq!(after, "<Size>1</Size></Contents></R>");
            assert_eq!(decode(&Path::parse(text).unwrap()), key);
        }
        assert_eq!(encode("<Key>cut"), "<Key>cut");
    }
}
