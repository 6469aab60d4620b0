//! A web server in the test's process, which answers, breaks and hangs as the test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// A request: its first line, and its headers in lower case.
#[derive(Debug, Clone)]
pub struct Request {
    /// As in "GET /bucket/key HTTP/1.1".
    pub line: String,
    /// "name: value" by line.
    pub headers: Vec<String>,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|header| header.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The first and the last byte of the range, if one is asked for.
    pub fn range(&self) -> Option<(usize, Option<usize>)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()))
    }
}

/// What the server does.
pub enum Reply {
    /// Sends bytes and keeps the connection.
    Answer(Vec<u8>),
    /// Sends bytes and ends the connection.
    Cut(Vec<u8>),
    /// Sends nothing until the client ends the connection.
    Hang,
}

#[derive(Default)]
struct Seen {
    requests: Mutex<(Vec<Request>, usize)>,
    changed: Condvar,
}

/// A running server.
pub struct Server {
    /// Its address.
    pub url: String,
    seen: Arc<Seen>,
}

/// An answer with a status line, headers by line, and a body.
pub fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length =
        if headers.contains("Content-Length") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let mut bytes = format!("HTTP/1.1 {status}\r\n{length}").into_bytes();
    for header in headers.lines() {
        bytes.extend_from_slice(format!("{header}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// The answer of S3 to a GET, whole or of a range.
pub fn object(request: &Request, content: &[u8], etag: &str) -> Vec<u8> {
    let about = format!("ETag: \"{etag}\"\nLast-Modified: Mon, 23 Nov 2026 03:00:00 GMT");
    let Some((first, last)) = request.range() else { return answer("200 OK", &about, content) };
    let end = last.map_or(content.len(), |last| content.len().min(last + 1));
    if first >= end {
        return answer("416 Range", "", b"<Error><Code>InvalidRange</Code></Error>");
    }
    let about = format!("{about}\nContent-Range: bytes {first}-{}/{}", end - 1, content.len());
    answer("206 Partial Content", &about, &content[first..end])
}

/// S3's answer to a failed request.
pub fn error(status: &str, code: &str) -> Reply {
    Reply::Answer(answer(status, "", format!("<Error><Code>{code}</Code><Message>why</Message></Error>").as_bytes()))
}

impl Server {
    /// Starts a server. `reply` gets the number of the request, from zero.
    pub fn start(reply: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, reply) = (Arc::<Seen>::default(), Arc::new(reply));
        let shared = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, reply) = (shared.clone(), reply.clone());
                thread::spawn(move || {
                    serve(stream, &seen, &*reply);
                    seen.requests.lock().unwrap().1 += 1;
                    seen.changed.notify_all();
                });
            }
        });
        Server { url, seen }
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.seen.requests.lock().unwrap().0.clone()
    }

    /// Waits until `met` is true of the number of requests and of ended connections.
    pub fn wait(&self, met: impl Fn(usize, usize) -> bool) {
        let requests = self.seen.requests.lock().unwrap();
        let waiting = |seen: &mut (Vec<Request>, usize)| !met(seen.0.len(), seen.1);
        let ended = self.seen.changed.wait_timeout_while(requests, Duration::from_secs(60), waiting);
        assert!(!ended.unwrap().1.timed_out(), "the condition was not met");
    }
}

fn serve(mut stream: TcpStream, seen: &Seen, reply: &(dyn Fn(usize, &Request) -> Reply + Send + Sync)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if !matches!(reader.read_line(&mut line), Ok(1..)) {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let headers = lines.split_off(1).into_iter().map(|header| {
            let (name, value) = header.split_once(':').unwrap();
            format!("{}: {}", name.to_lowercase(), value.trim())
        });
        let request = Request { line: lines.remove(0), headers: headers.collect() };
        let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let number = {
            let mut requests = seen.requests.lock().unwrap();
            requests.0.push(request.clone());
            seen.changed.notify_all();
            requests.0.len() - 1
        };
        match reply(number, &request) {
            Reply::Answer(bytes) => {
                if stream.write_all(&bytes).is_err() {
                    return;
                }
            }
            Reply::Cut(bytes) => {
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
            Reply::Hang => {
                let _ = reader.read(&mut [0]);
                return;
            }
        }
    }
}
