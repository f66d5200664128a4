// SPDX-License-Identifier: Apache-2.0

use http::header::CONTENT_TYPE;

use super::*;

fn get(path: &str) -> Option<Answer> {
    answer(&Request::of(path, Vec::new()))
}

/// The text of each file, by its name.
fn texts() -> impl Iterator<Item = (&'static str, &'static str)> {
    ASSETS
        .iter()
        .map(|(name, _, bytes)| (*name, std::str::from_utf8(bytes).unwrap()))
}

#[test]
fn every_file_has_its_type_and_the_strict_policy() {
    for (name, content_type, _) in ASSETS {
        let answer = get(&format!("{FOLDER}{name}")).unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{name}");
        let headers = answer.headers();
        assert_eq!(headers[CONTENT_TYPE], *content_type, "{name}");
        assert_eq!(headers[CACHE_CONTROL], "no-cache", "{name}");
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for part in ["script-src 'self';", "frame-ancestors 'none';", "base-uri 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
    }
    assert_eq!(get("/").unwrap().headers()[CONTENT_TYPE], ASSETS[0].1);
}

#[test]
fn other_paths_have_no_file() {
    for path in ["/page/", "/page/none.js", "/page/../mod.rs", "/index.html"] {
        assert!(get(path).is_none(), "{path}");
    }
    assert!(is_here("/") && is_here("/page/app.js"));
    assert!(!is_here("/api/v1/query") && !is_here("/pages"));
}

#[test]
fn a_client_that_has_the_file_gets_only_its_tag() {
    let tag = get("/").unwrap().headers()[ETAG].clone();
    let mut request = Request::of("/", Vec::new());
    let other = HeaderValue::from_static("\"other\"");
    request.headers.insert(IF_NONE_MATCH, other.clone());
    assert_eq!(answer(&request).unwrap().status(), StatusCode::OK);
    request.headers.append(IF_NONE_MATCH, tag.clone());
    let unchanged = answer(&request).unwrap();
    assert_eq!(unchanged.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(unchanged.headers()[ETAG], tag);
    let script = get("/page/app.js").unwrap();
    assert_ne!(script.headers()[ETAG], tag);
}

#[test]
fn every_file_that_a_file_names_is_served() {
    for (name, text) in texts() {
        let named = text.split('"').filter_map(|part| {
            let script = part.strip_prefix("./").filter(|part| part.ends_with(".js"));
            script.or_else(|| part.strip_prefix(FOLDER))
        });
        for file in named {
            assert!(get(&format!("{FOLDER}{file}")).is_some(), "{file} in {name}");
        }
    }
}

#[test]
fn no_file_has_inline_code_or_writes_html() {
    let words = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "<style",
        " style=",
        "javascript:",
        "https://",
    ];
    for (name, text) in texts() {
        for word in words {
            assert!(!text.contains(word), "{word} in {name}");
        }
    }
    let (_, html) = texts().next().unwrap();
    assert_eq!(html.matches("<script").count(), 1);
    assert_eq!(html.matches("<script type=\"module\" src=\"/page/").count(), 1);
}
