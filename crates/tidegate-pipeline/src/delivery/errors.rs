// SPDX-License-Identifier: Apache-2.0

//! The errors that exporters with a queue share, for the reference.

use crate::component::ErrorDoc;

/// Errors of every exporter that delivers through a queue.
pub const DELIVERY_ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The destination can't be reached, or asks for a retry. The data stays in the queue.",
        "sending failed, will retry",
        "Check the address, the network and the destination. The exporter tries again by itself.",
    ),
    ErrorDoc::logged(
        "The destination has failed for a minute.",
        "the destination is down",
        "Repair the destination. `held` is the number of items that wait.",
    ),
    ErrorDoc::logged(
        "The destination refuses the credentials.",
        "access denied: check the credentials",
        "Correct the credentials. Over HTTP and gRPC the data is dropped, unless \
         `retry_on_failure::retry_on_status` lists the status.",
    ),
    ErrorDoc::logged(
        "The exporter drops items. `reason` is one of the reasons of drops.",
        "dropped",
        "Read `error` in the line, and look at `tidegate_dropped_items_total`.",
    ),
    ErrorDoc::logged(
        "The destination takes the data, and adds a message.",
        "delivered, with a remark",
        "Read `note` in the line.",
    ),
    ErrorDoc::answered(
        "The queue is full, and refuses data. With `on_full: drop` it drops data instead.",
        "Senders get 503 or `UNAVAILABLE` from the receiver, with the time to wait",
        "Repair the destination, or raise `sending_queue::queue_size`.",
    ),
    ErrorDoc::logged(
        "The gateway stops before the queue is empty.",
        "stopped before the queue was empty",
        "Raise `service::drain_timeout`, or keep the queue on disk with `sending_queue::storage`.",
    ),
    ErrorDoc::logged(
        "No pipeline sends the stored data of a signal to the destination.",
        "no pipeline sends the stored data of this signal to the destination",
        "Add the exporter to a pipeline of the signal.",
    ),
];
