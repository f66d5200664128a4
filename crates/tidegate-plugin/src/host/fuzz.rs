// SPDX-License-Identifier: Apache-2.0

//! Frames of both directions, for fuzz targets only.

use super::frame::{self, MAX_ANSWER_BYTES, Request, Response};

/// A stream of frames, from the gateway or (by the first byte) from a plugin's process: each frame that can be read is
/// written such that it reads as the same.
pub fn frames(data: &[u8]) {
    let Some((side, mut stream)) = data.split_first() else {
        return;
    };
    let rewrite = if side & 1 == 0 { request } else { answer };
    while let Ok(Some(body)) = frame::read(&mut stream, MAX_ANSWER_BYTES) {
        if let Some(written) = rewrite(&body) {
            assert_eq!(rewrite(&written).as_ref(), Some(&written));
        }
    }
}

fn request(body: &[u8]) -> Option<Vec<u8>> {
    let request = Request::decode(body.to_vec().into()).ok()?;
    Some(request.encode())
}

fn answer(body: &[u8]) -> Option<Vec<u8>> {
    let answer = Response::decode(body.to_vec().into()).ok()?;
    Some(answer.encode())
}
