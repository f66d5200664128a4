// SPDX-License-Identifier: Apache-2.0

//! Replicas and producers of one process, over real sockets.

mod attacks;
mod cluster;
mod kit;
mod store;
