// SPDX-License-Identifier: Apache-2.0

//! The plugin's process: the same loader and the same calls, asked over a Unix socket.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

use super::frame::{self, MAX_REQUEST_BYTES, Request, Response};
use super::{Instance, Library, Refusal, Setup, Wanted};
use crate::response::Answer;

/// Serves the gateway at the other end of standard input until it closes. The plugin finds nothing there.
///
/// Memory that the process may write to is bounded by `memory_limit` bytes, stacks and shared mappings aside: an
/// allocation beyond it fails, which ends most plugins. Other processes are not affected.
///
/// # Errors
/// Standard input is not a socket, the limit can't be set, or the bytes are not the gateway's.
pub fn serve_stdin(memory_limit: u64) -> io::Result<()> {
    limit_memory(memory_limit)?;
    // A plugin that hangs would outlive a gateway that was killed: it would never see its socket end.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    serve(UnixStream::from(socket))
}

/// A limit that is in force already may be lower, and stays then.
fn limit_memory(limit: u64) -> io::Result<()> {
    let now = getrlimit(Resource::Data);
    let limit = now.maximum.map_or(limit, |maximum| maximum.min(limit));
    let both = Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    Ok(setrlimit(Resource::Data, both)?)
}

/// Serves the gateway at the other end until it closes.
///
/// # Errors
/// The socket fails, or what comes is not the gateway's.
pub fn serve(mut socket: UnixStream) -> io::Result<()> {
    let mut instance: Option<Instance> = None;
    while let Some(body) = frame::read(&mut socket, MAX_REQUEST_BYTES)? {
        let response = match Request::decode(body)? {
            Request::Create(wanted, setup) => match create(&wanted, &setup) {
                Ok((made, response)) => {
                    instance = Some(made);
                    response
                }
                Err(refusal) => Response::Refused(refusal.to_string()),
            },
            Request::Export(batch) => answered(&mut instance, |instance| instance.export(&batch)),
            Request::Flush => answered(&mut instance, Instance::flush),
            Request::Close => {
                drop(instance.take());
                Response::Answered(Answer::Ok)
            }
        };
        frame::write(&mut socket, &response.encode())?;
    }
    // The gateway has gone without a message. The plugin can still flush its data.
    instance.as_mut().map(Instance::flush);
    Ok(())
}

fn create(wanted: &Wanted, setup: &Setup) -> Result<(Instance, Response), Refusal> {
    let library = Library::open(wanted)?;
    let instance = Instance::create(&library, setup)?;
    Ok((instance, Response::Created(library.description().clone())))
}

fn answered(instance: &mut Option<Instance>, call: impl FnOnce(&mut Instance) -> Answer) -> Response {
    Response::Answered(match instance {
        Some(instance) => call(instance),
        None => Answer::Refused {
            why: "there is no instance".to_owned(),
        },
    })
}
