// SPDX-License-Identifier: Apache-2.0

//! A plugin in a process of its own: it can damage only its own memory, and a call can be cancelled.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::batch::ExportBatch;
use super::frame::{self, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES, Request, Response};
use super::worker::{Backend, Reply, Trouble};
use super::{Description, Refusal, Setup, Wanted};
use crate::response::Answer;

/// Delay before a process that ended is started again; doubled until a call succeeds.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The delay does not grow beyond this: a plugin that always crashes is started twice a minute.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// How long a process may take to be gone after its socket has ended.
const GRACE: Duration = Duration::from_secs(1);

/// Starts the program that calls [`serve_stdin`](super::serve_stdin).
type Program = Box<dyn Fn() -> Command + Send>;

/// A plugin by way of a process that is started when it is needed.
pub struct Process {
    program: Program,
    wanted: Wanted,
    setup: Setup,
    limit: Duration,
    host: Option<Host>,
    delay: Duration,
    /// When it may be started again, and why it is not there.
    down: Option<(Instant, String)>,
}

struct Host {
    child: Child,
    socket: UnixStream,
}

/// Why there is no answer.
enum ProcessFailure {
    TimedOut,
    Ended(io::Error),
}

impl Process {
    /// Starts the process and creates the plugin in it. `program` must call [`serve_stdin`](super::serve_stdin);
    /// `limit` bounds each call.
    ///
    /// # Errors
    /// The plugin can't be used.
    pub fn start(
        program: Program,
        wanted: Wanted,
        setup: Setup,
        limit: Duration,
    ) -> Result<(Self, Description), Refusal> {
        let mut process = Self {
            program,
            wanted,
            setup,
            limit,
            host: None,
            delay: FIRST_DELAY,
            down: None,
        };
        let description = process.launch()?;
        Ok((process, description))
    }

    fn launch(&mut self) -> Result<Description, Refusal> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| not_started(&error))?;
        let child = (self.program)()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            // Signals of a terminal are for the gateway to handle, not for the plugin.
            .process_group(0)
            .spawn()
            .map_err(|error| not_started(&error))?;
        let mut host = Host { child, socket: ours };
        let create = Request::Create(self.wanted.clone(), self.setup.clone());
        match host.ask(&create, self.limit) {
            Ok(Response::Created(description)) => {
                self.host = Some(host);
                Ok(description)
            }
            Ok(Response::Refused(why)) => {
                host.end(GRACE);
                Err(Refusal::Reported(why))
            }
            Ok(Response::Answered(_)) => {
                host.end(GRACE);
                Err(Refusal::Process("sent an answer without a request".to_owned()))
            }
            Err(ProcessFailure::TimedOut) => {
                host.end(Duration::ZERO);
                Err(Refusal::Slow { within: self.limit })
            }
            Err(ProcessFailure::Ended(error)) => {
                let how = host.end(GRACE);
                Err(Refusal::Process(format!(
                    "ended while the plugin was created: {how} ({error})"
                )))
            }
        }
    }

    /// The process, started again if it is time.
    fn host(&mut self) -> Result<&mut Host, Trouble> {
        if self.host.is_none() {
            if let Some((at, why)) = &self.down {
                let again = at.saturating_duration_since(Instant::now());
                if !again.is_zero() {
                    let why = why.clone();
                    return Err(Trouble::Down { again, why });
                }
            }
            if let Err(refusal) = self.launch() {
                let (again, why) = (self.put_off(refusal.to_string()), refusal.to_string());
                return Err(Trouble::Down { again, why });
            }
        }
        self.host.as_mut().ok_or(Trouble::Closed)
    }

    /// When it is to be started again.
    fn put_off(&mut self, why: String) -> Duration {
        let delay = self.delay;
        self.down = Some((Instant::now() + delay, why));
        self.delay = (delay * 2).min(MAX_DELAY);
        delay
    }

    fn call(&mut self, request: &Request) -> Reply {
        let limit = self.limit;
        let ended = match self.host()?.ask(request, limit) {
            Ok(Response::Answered(answer)) => {
                (self.delay, self.down) = (FIRST_DELAY, None);
                return Ok(answer);
            }
            Ok(_) => Some("it sent an answer without a request".to_owned()),
            Err(ProcessFailure::Ended(error)) => Some(error.to_string()),
            Err(ProcessFailure::TimedOut) => None,
        };
        let grace = if ended.is_some() { GRACE } else { Duration::ZERO };
        let how = self
            .host
            .take()
            .map(|mut host| host.end(grace))
            .unwrap_or_default();
        match ended {
            Some(why) => {
                self.put_off(how.clone());
                Err(Trouble::Crashed(format!("{how} ({why})")))
            }
            None => {
                self.put_off(format!("killed in a call that took more than {limit:?}"));
                Err(Trouble::TimedOut(limit))
            }
        }
    }
}

impl Backend for Process {
    fn export(&mut self, batch: &ExportBatch) -> Reply {
        let request = Request::Export(batch.clone());
        self.call(&request)
    }

    /// A process that is not there holds nothing.
    fn flush(&mut self) -> Reply {
        match self.host {
            Some(_) => self.call(&Request::Flush),
            None => Ok(Answer::Ok),
        }
    }

    fn close(mut self: Box<Self>) {
        if let Some(mut host) = self.host.take() {
            // Whatever it answers, it is over.
            let _ = host.ask(&Request::Close, self.limit);
            host.end(GRACE);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut host) = self.host.take() {
            host.end(GRACE);
        }
    }
}

fn not_started(error: &io::Error) -> Refusal {
    Refusal::Process(format!("can't be started: {error}"))
}

impl Host {
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Response, ProcessFailure> {
        let body = request.encode();
        if body.len() > MAX_REQUEST_BYTES {
            return Ok(Response::Answered(Answer::TooLarge {
                why: format!("{} bytes do not fit into a frame", body.len()),
            }));
        }
        let mut socket = Timed {
            socket: &self.socket,
            deadline: Instant::now() + limit,
        };
        frame::write(&mut socket, &body)?;
        let answer = frame::read(&mut socket, MAX_ANSWER_BYTES)?;
        let answer = answer.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(Response::decode(answer)?)
    }

    /// Ends the process and says how it ended: it has `grace` to go by itself, then it is killed.
    fn end(&mut self, grace: Duration) -> String {
        // It reads the end of the stream and goes, if it still can.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
        let deadline = Instant::now() + grace;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.to_string(),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                _ => break,
            }
        }
        // It may have ended just now.
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }
}

impl From<io::Error> for ProcessFailure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Ended(error),
        }
    }
}

/// A socket that knows until when it may be waited for.
struct Timed<'a> {
    socket: &'a UnixStream,
    deadline: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(left)
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
