"use strict";
(function () {
  var source = document.getElementById("readings"), plots = document.getElementById("plots");
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("details").forEach(function (d) { d.open = true; });
  });
  if (!source || !plots) return;
  var data = JSON.parse(source.textContent), readout = document.getElementById("readout");
  var crosses = plots.querySelectorAll(".cross"), at = null;

  function number(v) {
    var size = Math.abs(v);
    return size >= 1000 ? v.toLocaleString("en", { maximumFractionDigits: 0 }) : String(Number(v.toPrecision(4)));
  }
  function say(v, unit) {
    if (v === null || v === undefined) return "unknown";
    var slash = unit.indexOf("/"), head = slash < 0 ? unit : unit.slice(0, slash), per = slash < 0 ? "" : unit.slice(slash);
    if (head === "bytes" || head === "B") {
      var units = ["B", "KiB", "MiB", "GiB", "TiB"], i = 0;
      while (Math.abs(v) >= 1024 && i < 4) { v /= 1024; i += 1; }
      return Number(v.toPrecision(6)) + " " + units[i] + per;
    }
    if (unit === "s" && Math.abs(v) < 1) return number(v * 1000) + " ms";
    if (unit === "ratio") return number(v * 100) + " %";
    return number(v) + " " + unit;
  }
  function nearest(times, t) {
    var low = 0, high = times.length - 1;
    if (high < 0) return -1;
    while (high - low > 1) { var mid = (low + high) >> 1; if (times[mid] < t) low = mid; else high = mid; }
    return Math.abs(times[low] - t) <= Math.abs(times[high] - t) ? low : high;
  }
  function two(n) { return (n < 10 ? "0" : "") + n; }
  function show(t) {
    at = Math.min(Math.max(t, 0), data.duration);
    var x = data.x0 + at / data.duration * (data.x1 - data.x0), s = Math.round(at);
    crosses.forEach(function (c) { c.setAttribute("d", "M" + x.toFixed(1) + " 8v130"); });
    readout.textContent = "+" + two(Math.floor(s / 3600)) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60);
    plots.querySelectorAll("output").forEach(function (out) {
      var id = out.getAttribute("data-line").split("."), chart = data.charts[+id[0]], line = chart.lines[+id[1]];
      var i = nearest(line.t, at);
      out.textContent = i < 0 ? "" : say(line.v[i], chart.unit);
    });
  }
  function hide() {
    at = null;
    crosses.forEach(function (c) { c.setAttribute("d", ""); });
    readout.textContent = "";
    plots.querySelectorAll("output").forEach(function (out) { out.textContent = ""; });
  }
  plots.addEventListener("pointermove", function (e) {
    var box = plots.getBoundingClientRect(), x = (e.clientX - box.left) / box.width * data.width;
    if (x < data.x0 - 4) hide(); else show((x - data.x0) / (data.x1 - data.x0) * data.duration);
  });
  plots.addEventListener("pointerleave", hide);
  plots.addEventListener("keydown", function (e) {
    var step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (e.key === "Escape") hide();
    if (!step) return;
    e.preventDefault();
    show((at === null ? 0 : at) + step * data.duration / (e.shiftKey ? 20 : 200));
  });
})();
