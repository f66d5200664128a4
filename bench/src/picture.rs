// SPDX-License-Identifier: Apache-2.0

//! Curves as an SVG picture: a logarithmic x axis, a linear y axis from zero, every line named at its end. Readable on
//! light and on dark ground.

use std::fmt::Write as _;

/// A line: its name, and its points in order of x.
pub(crate) struct PlotLine {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The content of a picture.
pub(crate) struct Picture<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) lines: &'a [PlotLine],
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
/// Names of lines stand here.
const RIGHT: f64 = 210.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
/// Two names are at least so far apart.
const NAME_GAP: f64 = 15.0;

const STYLE: &str = "text{font:12px sans-serif;fill:#333}.t{font-size:14px}.a{stroke:#888}.g{stroke:#8884}\
.l{fill:none;stroke-width:2}.c0{stroke:#0b63c5;fill:#0b63c5}.c1{stroke:#c2410c;fill:#c2410c}\
.c2{stroke:#15803d;fill:#15803d}.c3{stroke:#8b3fc0;fill:#8b3fc0}.n{stroke:none}.l{fill:none}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.c0{stroke:#6cb2ff;fill:#6cb2ff}.c1{stroke:#ff9d6b;fill:#ff9d6b}\
.c2{stroke:#5fd38d;fill:#5fd38d}.c3{stroke:#d3a2f5;fill:#d3a2f5}.n{stroke:none}.l{fill:none}}";
const COLOURS: usize = 4;

/// Where values lie in the picture.
struct Scale {
    decades: (i32, i32),
    top: f64,
    step: f64,
}

impl Scale {
    fn of(lines: &[PlotLine]) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        let least = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let most = points().map(|(x, _)| *x).fold(1.0, f64::max);
        let highest = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let from = least.min(most).log10().floor() as i32;
        let to = (most.log10().ceil() as i32).max(from + 1);
        let step = step(highest);
        Self {
            decades: (from, to),
            top: (highest / step).ceil().max(1.0) * step,
            step,
        }
    }

    fn x(&self, value: f64) -> f64 {
        let (from, to) = (f64::from(self.decades.0), f64::from(self.decades.1));
        LEFT + (value.log10() - from) / (to - from) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)
    }
}

/// A round distance of grid lines, of which four or five make `highest`.
fn step(highest: f64) -> f64 {
    let rough = highest.max(1e-9) / 4.0;
    let unit = 10f64.powf(rough.log10().floor());
    let of_unit = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|factor| factor * unit >= rough * 0.999);
    of_unit.unwrap_or(10.0) * unit
}

/// Heights for names at these heights, none too near another: pushed down, in their order.
fn apart(mut wanted: Vec<(usize, f64)>) -> Vec<(usize, f64)> {
    wanted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut last = f64::NEG_INFINITY;
    for (_, y) in &mut wanted {
        *y = y.max(last + NAME_GAP);
        last = *y;
    }
    wanted
}

impl Picture<'_> {
    pub(crate) fn svg(&self) -> String {
        let scale = Scale::of(self.lines);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n<text class=\"t\" x=\"{LEFT}\" y=\"20\">{title}</text>\n",
            title = escaped(self.title)
        );
        self.axes(&mut svg, &scale);
        self.curves(&mut svg, &scale);
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String, scale: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for at in 0..=(scale.top / scale.step).round() as u32 {
            let value = f64::from(at) * scale.step;
            let y = scale.y(value);
            let _ = writeln!(
                svg,
                "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                short(value)
            );
        }
        for decade in scale.decades.0..=scale.decades.1 {
            let value = 10f64.powi(decade);
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                scale.x(value),
                bottom + 17.0,
                short(value)
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"a\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n\
             <text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n<text x=\"{LEFT}\" y=\"34\">{}</text>",
            HEIGHT - 12.0,
            escaped(self.x),
            escaped(self.y)
        );
    }

    fn curves(&self, svg: &mut String, scale: &Scale) {
        let mut names = Vec::new();
        for (number, line) in self.lines.iter().enumerate() {
            let at = |(x, y): &(f64, f64)| (scale.x(*x), scale.y(*y));
            let places: Vec<(f64, f64)> = line.points.iter().map(at).collect();
            let colour = number % COLOURS;
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline class=\"c{colour} l\" points=\"{}\"/>",
                path.join(" ")
            );
            for (x, y) in &places {
                let _ = writeln!(
                    svg,
                    "<circle class=\"c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
                );
            }
            names.extend(places.last().map(|(_, y)| (number, *y)));
        }
        for (number, y) in apart(names) {
            let end = self.lines[number].points.last().map_or(0.0, |(x, _)| scale.x(*x));
            let _ = writeln!(
                svg,
                "<text class=\"c{} n\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                number % COLOURS,
                end + 8.0,
                y + 4.0,
                escaped(&self.lines[number].name)
            );
        }
    }
}

/// 1000 as 1k, a million as 1M.
fn short(value: f64) -> String {
    let scaled = [(1e6, "M"), (1e3, "k")]
        .into_iter()
        .find(|(unit, _)| value >= *unit);
    let (value, unit) = scaled.map_or((value, ""), |(unit, letter)| (value / unit, letter));
    let rounded = (value * 100.0).round() / 100.0;
    format!("{rounded}{unit}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: &[(f64, f64)]) -> Vec<PlotLine> {
        vec![PlotLine {
            name: "a < b".to_owned(),
            points: points.to_vec(),
        }]
    }

    #[test]
    fn decades_are_as_wide_as_each_other_and_zero_is_at_the_bottom() {
        let scale = Scale::of(&lines(&[(1e3, 80.0), (1e6, 410.0)]));
        assert_eq!(scale.decades, (3, 6));
        assert_eq!((scale.step, scale.top), (200.0, 600.0));
        let xs = [1e3, 1e4, 1e5, 1e6].map(|x| scale.x(x));
        assert_eq!((xs[0], xs[3]), (LEFT, WIDTH - RIGHT));
        assert!((xs[1] - xs[0] - (xs[3] - xs[2])).abs() < 1e-9);
        assert_eq!((scale.y(0.0), scale.y(600.0)), (HEIGHT - BOTTOM, TOP));
    }

    #[test]
    fn grid_lines_are_round_numbers_apart() {
        for (highest, expected) in [(4.0, 1.0), (4.1, 2.0), (18.0, 5.0), (21.0, 10.0), (0.0, 5e-10)] {
            let step = step(highest);
            assert!(
                step >= expected * 0.99 && step <= expected * 1.01,
                "{highest}: {step}"
            );
        }
    }

    #[test]
    fn names_do_not_lie_on_each_other() {
        let placed = apart(vec![(0, 100.0), (1, 98.0), (2, 101.0), (3, 300.0)]);
        assert_eq!(
            placed,
            [
                (1, 98.0),
                (0, 98.0 + NAME_GAP),
                (2, 98.0 + 2.0 * NAME_GAP),
                (3, 300.0)
            ]
        );
    }

    #[test]
    fn a_picture_names_its_lines_and_escapes_them() {
        let lines = lines(&[(1e3, 1.0), (1e6, 2.0)]);
        let picture = Picture {
            title: "growth",
            x: "series",
            y: "ns",
            lines: &lines,
        };
        let svg = picture.svg();
        assert!(
            svg.contains(">a &lt; b</text>")
                && svg.contains(">1M</text>")
                && svg.contains("prefers-color-scheme")
        );
        assert_eq!(svg.matches("<circle").count(), 2);
    }
}
