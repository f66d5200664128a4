// SPDX-License-Identifier: Apache-2.0

//! The errors that servers share, for the reference.

use crate::component::ErrorDoc;

/// Errors of every listener.
pub const LISTENER_ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "Another process or component listens on the address. The gateway does not start.",
        "another process or component listens there",
        "Stop the other process, or choose another port. `tidegate validate --env` names the ports \
         that are taken.",
    ),
    ErrorDoc::logged(
        "The address belongs to no interface of the machine. The gateway does not start.",
        "the address belongs to no interface of this machine",
        "Set `endpoint` to an address of the machine, or to `0.0.0.0`.",
    ),
    ErrorDoc::logged(
        "The listener can't accept a connection, for example because the process has too many open \
         files.",
        "can't accept a connection",
        "Raise the limit of open files. The listener tries again by itself.",
    ),
    ErrorDoc::logged(
        "An address opens more connections than `max_connections_per_peer`. The server closes the \
         new ones.",
        "the address has too many connections: closed",
        "Let clients reuse their connections, or raise `max_connections_per_peer`.",
    ),
    ErrorDoc::logged(
        "The TLS handshake of a client fails. The server closes the connection.",
        "TLS handshake failed",
        "Set the log level `debug` to see the reason. Check the certificates of both sides.",
    ),
    ErrorDoc::logged(
        "A changed certificate or key can't be used.",
        "can't use the changed files; the previous content stays in use",
        "Correct the files. The gateway reads them again after `reload_interval`.",
    ),
];

/// Errors of every listener that can have a Unix socket.
pub const SOCKET_ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "Another kind of file has the path of the Unix socket. The gateway does not start.",
        "exists and is not a socket: move it away or choose another path",
        "Move the file away, or choose another path.",
    ),
    ErrorDoc::logged(
        "Another process listens on the Unix socket. The gateway does not start.",
        "stop it or choose another path",
        "Stop the other process, or choose another path.",
    ),
];

/// Errors of every server that has pages for readers.
pub const PAGE_ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "The path does not exist.",
        "404",
        "Correct the path of the request.",
    ),
    ErrorDoc::answered(
        "The path does not allow the method.",
        "405 with `Allow`",
        "Use a method that `Allow` names.",
    ),
    ErrorDoc::answered(
        "The request has no header `Host`, or two of them.",
        "400",
        "Send the header once.",
    ),
    ErrorDoc::answered(
        "The endpoint is a loopback address, and `Host` has a name that is neither `localhost` nor \
         in `allowed_hosts`.",
        "403",
        "Use an address, or add the name to `allowed_hosts`.",
    ),
    ErrorDoc::answered(
        "The request has more than 1,000 parameters, or its form is too large.",
        "413",
        "Send fewer parameters.",
    ),
    ErrorDoc::answered(
        "Memory is short, or unread answers take too much of it.",
        "503 with `Retry-After`",
        "Read answers to their end, or raise the memory limit.",
    ),
    ErrorDoc::answered(
        "The answer breaks off because of a bug.",
        "500",
        "Report the bug, with the log.",
    ),
];

/// Errors of every server that can authenticate its clients.
pub const AUTH_ERRORS: &[ErrorDoc] = &[
    ErrorDoc::answered(
        "`auth` is set, and the client sends no credentials or wrong ones.",
        "401 or `UNAUTHENTICATED`",
        "Send credentials that the extension of `auth` knows.",
    ),
    ErrorDoc::answered(
        "The address of the client has sent too many wrong credentials.",
        "503 with `Retry-After`, or `UNAVAILABLE`",
        "Correct the credentials. The gateway checks them again after the time of `Retry-After`.",
    ),
];
