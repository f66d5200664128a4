// SPDX-License-Identifier: Apache-2.0

//! A page of tables.

use std::fmt::Write;

/// Paths and titles of all pages.
pub(super) const PAGES: [(&str, &str); 5] = [
    ("/debug/servicez", "Service"),
    ("/debug/pipelinez", "Pipelines"),
    ("/debug/extensionz", "Extensions"),
    ("/debug/featurez", "Feature gates"),
    ("/debug/tracez", "Slow batches"),
];

const STYLE: &str = "body{font-family:sans-serif;margin:1em}table{border-collapse:collapse;margin:1em 0}\
    th,td{border:1px solid #999;padding:.2em .6em;text-align:left}nav a{margin-right:1em}";

/// A page under construction.
pub(super) struct HtmlPage(String);

impl HtmlPage {
    pub(super) fn new(title: &str) -> Self {
        let links = PAGES.map(|(path, name)| format!("<a href=\"{path}\">{name}</a>"));
        Self(format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title} - tidegate</title>\
             <style>{STYLE}</style></head><body><nav>{}</nav><h1>{title}</h1>\n",
            links.concat()
        ))
    }

    /// A sentence.
    pub(super) fn text(mut self, text: &str) -> Self {
        self.0 += &format!("<p>{}</p>\n", escaped(text));
        self
    }

    /// A table; cells are text.
    pub(super) fn table<const N: usize>(
        mut self,
        head: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        self.0 += "<table><thead>";
        self.row("th", head.map(str::to_owned));
        self.0 += "</thead><tbody>\n";
        for row in rows {
            self.row("td", row);
        }
        self.0 += "</tbody></table>\n";
        self
    }

    fn row<const N: usize>(&mut self, element: &str, cells: [String; N]) {
        self.0 += "<tr>";
        for cell in cells {
            // Writing to a string can't fail.
            let _ = write!(self.0, "<{element}>{}</{element}>", escaped(&cell));
        }
        self.0 += "</tr>\n";
    }

    pub(super) fn end(mut self) -> String {
        self.0 += "</body></html>\n";
        self.0
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_text() {
        let page = HtmlPage::new("T")
            .table(["a"], [["<script>\"&".to_owned()]])
            .end();
        assert!(page.contains("<td>&lt;script&gt;&quot;&amp;</td>"), "{page}");
    }
}
