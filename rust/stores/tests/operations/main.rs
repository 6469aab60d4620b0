//! Operations against a server that fails.

mod server;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use server::{Reply, Request, Server, answer, error, object};
use smdwidgets_stores::client::{Client, Condition};
use smdwidgets_stores::error::{Code, Result};
use smdwidgets_stores::store::{Running, Store};

const TICK: Duration = Duration::from_millis(20);

fn store_of(server: &Server, options: &[(&str, &str)], renews: bool) -> Store {
    let mut all = BTreeMap::from([
        ("aws_endpoint".to_owned(), server.url.clone()),
        ("aws_region".to_owned(), "us-east-1".to_owned()),
        ("allow_http".to_owned(), "true".to_owned()),
    ]);
    if !renews {
        all.insert("aws_access_key_id".to_owned(), "key".to_owned());
        all.insert("aws_secret_access_key".to_owned(), "secret".to_owned());
    }
    all.extend(options.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    Store::new("s3://bucket", all, 8, renews).unwrap()
}

fn store(server: &Server) -> Store {
    store_of(server, &[], false)
}

fn finish<T>(mut running: Running<T>) -> Result<T> {
    loop {
        if let Some(result) = running.wait(TICK) {
            return result;
        }
    }
}

fn run<T, F>(store: &Store, operation: impl FnOnce(Arc<Client>) -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    finish(store.start(operation)?)
}

fn get(store: &Store, key: &'static str, limit: u64) -> Result<(Vec<u8>, String)> {
    run(store, move |client| async move { client.get(key, limit).await })
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn failures_that_pass_are_repeated() {
    let server = Server::start(|number, request| match number {
        0 => error("503 Busy", "SlowDown"),
        1 => error("500 Fault", "InternalError"),
        2 => Reply::Cut(Vec::new()),
        3 => error("429 Many", ""),
        _ => Reply::Answer(object(request, b"value", "tag")),
    });
    let store = store(&server);
    assert_eq!(get(&store, "key", 10).unwrap(), (b"value".to_vec(), "tag".to_owned()));
    assert_eq!(store.requests(), [0, 5, 0, 0, 0, 4, store.requests()[6]]);
}

#[test]
fn failures_that_last_are_named() {
    let server = Server::start(|_, request| match request.line.split([' ', '/']).nth(3).unwrap() {
        "denied" => error("403 Forbidden", "AccessDenied"),
        "region" => Reply::Answer(answer("301 Moved", "x-amz-bucket-region: eu-west-1", b"")),
        "bucket" => error("404 Not Found", "NoSuchBucket"),
        _ => error("404 Not Found", "NoSuchKey"),
    });
    let store = store(&server);
    for (key, code, part) in [
        ("denied", Code::Denied, "403"),
        ("region", Code::Region, "eu-west-1"),
        ("bucket", Code::NoBucket, "NoSuchBucket"),
        ("missing", Code::Missing, "NoSuchKey"),
        ("a/../b", Code::Other, "component"),
    ] {
        let error = get(&store, key, 10).unwrap_err();
        assert_eq!((error.key.as_str(), error.code), (key, code), "{error}");
        assert!(error.message.contains(part), "{error}");
    }
    assert_eq!(server.requests().len(), 4);
}

#[test]
fn bodies_continue_at_the_missing_byte() {
    let all = content(100_000);
    let sent = all.clone();
    let server = Server::start(move |number, request| {
        let whole = object(request, &sent, "tag");
        let body = sent.len() - request.range().map_or(0, |(first, _)| first);
        if number < 3 { Reply::Cut(whole[..whole.len() - body + 20_000].to_vec()) } else { Reply::Answer(whole) }
    });
    assert!(get(&store(&server), "key", 1 << 20).unwrap().0 == all);
    let asked: Vec<_> = server.requests().iter().map(|request| request.range().map(|(first, _)| first)).collect();
    assert_eq!(asked, [None, Some(20_000), Some(40_000), Some(60_000)]);
    assert!(server.requests()[1..].iter().all(|request| request.header("if-match") == Some("\"tag\"")));
}

#[test]
fn an_object_that_changes_between_attempts_is_read_from_its_start() {
    let server = Server::start(|number, request| match number {
        0 => {
            let whole = object(request, b"old content", "old");
            Reply::Cut(whole[..whole.len() - 5].to_vec())
        }
        1 => error("412 Precondition Failed", "PreconditionFailed"),
        _ => Reply::Answer(object(request, b"new", "new")),
    });
    assert_eq!(get(&store(&server), "key", 100).unwrap(), (b"new".to_vec(), "new".to_owned()));
    let last = server.requests().pop().unwrap();
    assert_eq!((last.range(), last.header("if-match")), (None, None));
}

#[test]
fn an_expected_etag_is_sent_and_compared() {
    let server = Server::start(|number, request| match number {
        0 => error("412 Precondition Failed", "PreconditionFailed"),
        _ => Reply::Answer(object(request, b"content", "new")), // this server ignores the condition
    });
    let store = store(&server);
    for _ in 0..2 {
        let read = run(&store, |client| async move { client.get_range("key", 0..3, "old").await });
        assert_eq!(read.unwrap_err().code, Code::Changed);
    }
    assert_eq!(server.requests()[0].header("if-match"), Some("\"old\""));
}

#[test]
fn a_silent_server_is_asked_again() {
    let server = Server::start(|number, request| match number {
        0 => Reply::Hang,
        _ => Reply::Answer(object(request, b"value", "tag")),
    });
    assert_eq!(get(&store_of(&server, &[("read_timeout", "0.2")], false), "key", 10).unwrap().0, b"value");
}

#[test]
fn a_body_that_stops_continues() {
    let stopped = Arc::new(AtomicUsize::new(0));
    let all = content(50_000);
    let sent = all.clone();
    let server = Server::start(move |_, request| {
        let whole = object(request, &sent, "tag");
        if stopped.fetch_add(1, Ordering::SeqCst) == 0 {
            Reply::Answer(whole[..10_000].to_vec())
        } else {
            Reply::Answer(whole)
        }
    });
    assert!(get(&store_of(&server, &[("read_timeout", "0.2")], false), "key", 1 << 20).unwrap().0 == all);
    assert!(server.requests()[1].range().is_some_and(|(first, _)| first > 9000));
}

#[test]
fn the_time_of_an_operation_is_bounded() {
    let server = Server::start(|_, _| Reply::Hang);
    let error = get(&store_of(&server, &[("timeout", "0.3")], false), "key", 10).unwrap_err();
    assert_eq!(error.code, Code::Timeout);
}

#[test]
fn a_busy_server_is_named_at_the_end() {
    let server = Server::start(|_, _| error("503 Busy", "SlowDown"));
    let error = get(&store_of(&server, &[("timeout", "0.5")], false), "key", 10).unwrap_err();
    assert_eq!(error.code, Code::Busy);
}

#[test]
fn sizes_are_checked_before_the_body() {
    let headers = "ETag: \"tag\"\nLast-Modified: Mon, 23 Nov 2026 03:00:00 GMT\nContent-Length: 1000000000000";
    let server = Server::start(move |_, _| Reply::Answer(answer("200 OK", headers, b"begin")));
    let error = get(&store(&server), "key", 1000).unwrap_err();
    assert_eq!((error.code, server.requests().len()), (Code::TooLarge, 1));
}

#[test]
fn closing_and_dropping_end_connections() {
    let server = Server::start(|_, _| Reply::Hang);
    let closed = store(&server);
    let waiting: Vec<_> =
        (0..4).map(|_| closed.start(|client| async move { client.get("key", 10).await }).unwrap()).collect();
    server.wait(|requests, _| requests == 4);
    closed.close();
    for running in waiting {
        assert_eq!(finish(running).unwrap_err().code, Code::Cancelled);
    }
    assert_eq!(get(&closed, "key", 10).unwrap_err().code, Code::Cancelled);
    server.wait(|_, ended| ended == 4);
    let dropped = store(&server);
    let running = dropped.start(|client| async move { client.get("key", 10).await }).unwrap();
    server.wait(|requests, _| requests == 5);
    drop(running);
    server.wait(|_, ended| ended == 5);
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("key-{number}")).collect()
}

#[test]
fn many_objects_arrive_with_their_errors() {
    let server = Server::start(|number, request| {
        if request.line.contains("key-7 ") {
            return error("404 Not Found", "NoSuchKey");
        }
        if number % 5 == 0 {
            return Reply::Cut(Vec::new());
        }
        let key = request.line.split([' ', '/']).nth(3).unwrap().to_owned();
        Reply::Answer(object(request, key.as_bytes(), "tag"))
    });
    let store = store(&server);
    let mut arriving = store.start_many(|client| client.get_many(keys(100), 100)).unwrap();
    let mut found = HashMap::new();
    loop {
        match arriving.wait(TICK) {
            None => {}
            Some(Ok(Some((key, read)))) => drop(found.insert(key, read)),
            Some(ended) => break assert!(ended.unwrap().is_none()),
        }
    }
    assert_eq!(found.len(), 100);
    for (key, read) in found {
        match read {
            Ok(bytes) => assert_eq!(bytes, key.as_bytes()),
            Err(error) => assert_eq!((error.key.as_str(), error.code), ("key-7", Code::Missing)),
        }
    }
}

#[test]
fn what_no_one_takes_is_not_read() {
    let server = Server::start(|_, request| Reply::Answer(object(request, b"value", "tag")));
    let store = store(&server);
    let mut arriving = store.start_many(|client| client.get_many(keys(1000), 100)).unwrap();
    for taken in 0..1000 {
        // Eight wait to be taken, one for room, and seven are being read.
        let most = taken + 17;
        assert!(server.requests().len() <= most, "{} of {most}", server.requests().len());
        while arriving.wait(TICK).is_none() {}
    }
}

#[test]
fn ranges_are_read_together() {
    let all = content(4 << 20);
    let sent = all.clone();
    let server = Server::start(move |_, request| Reply::Answer(object(request, &sent, "tag")));
    let store = store(&server);
    let spans = [(5, 100), (50, 200), (1000, 10), (3 << 20, 2 << 20), (7, 0), (9 << 20, 1), (0, 1 << 62)];
    let ranges = spans.iter().map(|&(start, length)| ("key".to_owned(), start..start + length)).collect();
    let read = run(&store, |client| async move { Ok(client.get_ranges(ranges, &HashMap::new()).await) }).unwrap();
    for (read, (start, length)) in read.into_iter().zip(spans) {
        let expected = all.get(start as usize..all.len().min((start + length) as usize));
        match read {
            Ok((bytes, etag)) => assert!(bytes == expected.unwrap() && etag == "tag"),
            Err(error) if length < 1 << 40 => assert_eq!((error.code, expected), (Code::Range, None)),
            Err(error) => assert_eq!(error.code, Code::TooLarge),
        }
    }
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn ranges_of_an_object_that_changes_in_between_fail() {
    let all = content(20 << 20);
    let server = Server::start(move |number, request| Reply::Answer(object(request, &all, &format!("tag{number}"))));
    let store = store(&server);
    let ranges = vec![("key".to_owned(), 0..20 << 20)];
    let read = run(&store, |client| async move { Ok(client.get_ranges(ranges, &HashMap::new()).await) }).unwrap();
    assert_eq!(read[0].as_ref().unwrap_err().code, Code::Changed);
}

#[test]
fn listings_hold_the_keys_as_they_are() {
    let all = ["a", "a//b", "a/../b", "b &amp; c", "dir/", "other"];
    let server = Server::start(move |number, _| {
        let (part, next) =
            if number == 0 { (&all[..3], "<NextContinuationToken>t</NextContinuationToken>") } else { (&all[3..], "") };
        let about = "<LastModified>2026-11-23T03:00:00.500Z</LastModified><ETag>&quot;e&quot;</ETag><Size>7</Size>";
        let contents: String = part.iter().map(|key| format!("<Contents><Key>{key}</Key>{about}</Contents>")).collect();
        let page = format!("<ListBucketResult><Name>bucket</Name>{contents}{next}</ListBucketResult>");
        Reply::Answer(answer("200 OK", "", page.as_bytes()))
    });
    let store = store(&server);
    let page = |token: Option<&'static str>, start_after: &'static str| {
        run(&store, move |client| async move { client.page("", start_after, token).await }).unwrap()
    };
    let (first, second) = (page(None, ""), page(Some("t"), "b"));
    let keys: Vec<&str> = first.entries.iter().chain(&second.entries).map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["a", "a//b", "a/../b", "b & c", "dir/", "other"]);
    assert_eq!((first.next.as_deref(), second.next), (Some("t"), None));
    let entry = &first.entries[0];
    assert_eq!((entry.size, entry.modified, entry.etag.as_str()), (7, 1795402800.5, "e"));
    assert!(server.requests()[1].line.contains("continuation-token=t"));
}

#[test]
fn folders_have_their_names_as_they_are() {
    let server = Server::start(|_, _| {
        let folders = ["dir/k/", "dir/a%20b/", "dir/x &amp; y/", "dir//", "dir/../"];
        let prefix = |name: &str| format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>");
        let folders: String = folders.into_iter().map(prefix).collect();
        let about = "<LastModified>2026-11-23T03:00:00.500Z</LastModified><ETag>&quot;e&quot;</ETag><Size>7</Size>";
        let file = format!("<Contents><Key>dir/file</Key>{about}</Contents>");
        let page =
            format!("<ListBucketResult><Name>bucket</Name><Prefix>dir/</Prefix>{file}{folders}</ListBucketResult>");
        Reply::Answer(answer("200 OK", "", page.as_bytes()))
    });
    let page = run(&store(&server), |client| async move { client.folder("dir/", None).await }).unwrap();
    assert_eq!(page.folders, ["dir/k", "dir/a%20b", "dir/x & y", "dir/", "dir/.."]);
    assert_eq!(page.entries.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["dir/file"]);
    assert!(server.requests()[0].line.contains("delimiter=%2F"));
}

#[test]
fn a_page_that_is_cut_is_asked_for_again() {
    let server = Server::start(|number, _| {
        let page: &[u8] = b"<ListBucketResult><Name>bucket</Name></ListBucketResult>";
        Reply::Answer(answer("200 OK", "", if number == 0 { &page[..30] } else { page }))
    });
    let store = store(&server);
    assert!(run(&store, |client| async move { client.page("", "", None).await }).unwrap().entries.is_empty());
}

#[test]
fn expired_credentials_are_renewed_once() {
    let server = Server::start(|_, request| {
        if request.line.contains("/ok ") && request.header("x-amz-security-token") == Some("token-2") {
            return Reply::Answer(object(request, b"value", "tag"));
        }
        error("400 Bad Request", "ExpiredToken")
    });
    let store = store_of(&server, &[], true);
    let mut asked = 0;
    let mut get = |key: &'static str| {
        let mut running = store.start(move |client| async move { client.get(key, 10).await }).unwrap();
        loop {
            let client = store.client().unwrap();
            let credentials = client.credentials().unwrap();
            if credentials.claim() {
                asked += 1;
                let values =
                    [("key_id", "k".to_owned()), ("secret", "s".to_owned()), ("token", format!("token-{asked}"))];
                credentials.provide(Ok(values.map(|(name, value)| (name.to_owned(), value)).into()));
            }
            if let Some(result) = running.wait(TICK) {
                return (result, asked);
            }
        }
    };
    let (read, asked) = get("ok");
    assert_eq!((read.unwrap().0, asked), (b"value".to_vec(), 2));
    let (read, asked) = get("refused");
    assert_eq!((read.unwrap_err().code, asked), (Code::Expired, 3));
}

#[test]
fn objects_are_written_and_deleted() {
    let server = Server::start(|_, request: &Request| match &request.line {
        line if line.starts_with("DELETE /bucket/gone") => error("404 Not Found", "NoSuchKey"),
        line if line.starts_with("DELETE") => Reply::Answer(answer("204 No Content", "", b"")),
        _ if request.header("if-none-match").is_some() => error("412 Precondition Failed", "PreconditionFailed"),
        _ => Reply::Answer(answer("200 OK", "ETag: \"tag\"", b"")),
    });
    let store = store(&server);
    let put =
        |condition| run(&store, |client| async move { client.put("a b%20ü", vec![1, 2].into(), condition).await });
    assert_eq!(put(Condition::Always).unwrap(), "tag");
    assert_eq!(put(Condition::Unchanged("old".to_owned())).unwrap(), "tag");
    assert_eq!(put(Condition::Absent).unwrap_err().code, Code::Changed);
    let sent = server.requests();
    assert!(sent[0].line.starts_with("PUT /bucket/a%20b%2520%C3%BC "), "{}", sent[0].line);
    assert_eq!(sent[1].header("if-match"), Some("\"old\""));
    let keys = vec!["one".to_owned(), "gone".to_owned()];
    run(&store, |client| async move { client.delete(keys).await }).unwrap();
}

#[test]
fn uploads_in_parts_are_completed_or_aborted() {
    let fails = Arc::new(AtomicUsize::new(0));
    let server = {
        let fails = fails.clone();
        Server::start(move |number, request: &Request| match &request.line {
            line if line.contains("?uploads") => Reply::Answer(answer(
                "200 OK",
                "",
                b"<InitiateMultipartUploadResult><UploadId>id</UploadId></InitiateMultipartUploadResult>",
            )),
            line if line.starts_with("DELETE") => Reply::Answer(answer("204 No Content", "", b"")),
            line if line.starts_with("POST") => Reply::Answer(answer(
                "200 OK",
                "",
                b"<CompleteMultipartUploadResult><ETag>\"whole-3\"</ETag></CompleteMultipartUploadResult>",
            )),
            _ if fails.load(Ordering::SeqCst) > 0 => error("403 Forbidden", "AccessDenied"),
            _ if number == 2 => error("503 Busy", "SlowDown"),
            _ => Reply::Answer(answer("200 OK", "ETag: \"part\"", b"")),
        })
    };
    let file = std::env::temp_dir().join(format!("smdwidgets-stores-upload-{}", std::process::id()));
    std::fs::write(&file, content(20 << 20)).unwrap();
    let store = store(&server);
    let put = || {
        let file = file.clone();
        run(&store, |client| async move { client.put_file("key", file).await })
    };
    assert_eq!(put().unwrap(), "whole-3");
    let lines: Vec<String> = server.requests().into_iter().map(|request| request.line).collect();
    assert_eq!((lines.len(), lines.iter().filter(|line| line.contains("partNumber")).count()), (6, 4), "{lines:?}");
    fails.store(1, Ordering::SeqCst);
    assert_eq!(put().unwrap_err().code, Code::Denied);
    server.wait(|requests, _| requests > 8);
    while !server.requests().iter().any(|request| request.line.starts_with("DELETE /bucket/key?uploadId=id")) {
        server.wait(|requests, _| requests > 0);
        std::thread::yield_now();
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn plain_web_servers_are_read_even_without_ranges() {
    let all = content(3000);
    let sent = all.clone();
    let server = Server::start(move |_, request| {
        assert!(request.line.contains(" /runs/a%20b/c "), "{}", request.line);
        if request.line.starts_with("HEAD") {
            return Reply::Answer(answer("200 OK", "Content-Length: 3000", b""));
        }
        Reply::Answer(answer("200 OK", "", &sent))
    });
    let store = Store::new(&format!("{}/runs/", server.url), BTreeMap::new(), 8, false).unwrap();
    let read = run(&store, |client| async move { client.get_range("a b/c", 1000..1500, "").await }).unwrap();
    assert_eq!(read, (all[1000..1500].to_vec(), String::new()));
    assert!(get(&store, "a b/c", 5000).unwrap().0 == all);
    assert_eq!(run(&store, |client| async move { client.head("a b/c").await }).unwrap().unwrap().size, 3000);
    let listed = run(&store, |client| async move { client.page("a", "", None).await });
    assert_eq!(listed.unwrap_err().code, Code::Other);
}

#[test]
fn folders_of_web_servers_are_read() {
    let server = Server::start(|_, request| match request.line.split(' ').nth(1).unwrap() {
        "/runs/" => Reply::Cut(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<a href='a b/'>".to_vec()),
        "/runs/a%20b/" => Reply::Answer(answer("200 OK", "", b"<a href='c'>")),
        _ => error("404 Not Found", ""),
    });
    for url in ["/runs/", "/runs"] {
        let store = Store::new(&format!("{}{url}", server.url), BTreeMap::new(), 8, false).unwrap();
        assert_eq!(get(&store, "", 100).unwrap().0, b"<a href='a b/'>");
        assert_eq!(get(&store, "a b/", 100).unwrap().0, b"<a href='c'>");
        assert_eq!(get(&store, "a b", 100).unwrap_err().code, Code::Missing);
        assert_eq!(get(&store, "../", 100).unwrap_err().code, Code::Other);
    }
}

#[test]
fn unusable_addresses_and_options_are_refused() {
    for (url, name) in [("s3://bucket", "no_such"), ("ftp://host/", ""), ("file:///tmp", ""), ("bucket", "")] {
        let options =
            if name.is_empty() { BTreeMap::new() } else { BTreeMap::from([(name.to_owned(), "1".to_owned())]) };
        let error = Store::new(url, options, 8, false).err().unwrap();
        assert!(error.message.contains(if name.is_empty() { url } else { name }), "{error}");
    }
}
