// What the pages gain from a script: plots, copying, dropping files, ages that go on, and parts that move. Every one of
// them reads and acts without it.
(() => {
  "use strict";
  document.documentElement.classList.add("scripted");

  // The theme is chosen by choosing it; without a script there is a button.
  document.getElementById("theme")?.addEventListener("change", (event) => event.target.form.submit());

  // Ages, from the moment that stands in each.
  const span = (seconds) =>
    seconds < 5 ? "just now" : seconds < 60 ? `${Math.round(seconds)} s ago` : seconds < 3600 ? `${Math.floor(seconds / 60)} min ago`
      : seconds < 86400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86400)} d ago`;
  setInterval(() => {
    for (const item of document.querySelectorAll("time[data-ago]"))
      item.textContent = span(Math.max(0, (Date.now() - Date.parse(item.dateTime)) / 1000));
  }, 5000);

  const copying = (root) => {
    for (const text of root.querySelectorAll("pre.copy")) {
      if (text.parentElement.classList.contains("copy-wrap")) continue;
      const wrap = document.createElement("div");
      wrap.className = "copy-wrap";
      text.replaceWith(wrap);
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.setAttribute("aria-live", "polite");
      button.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(text.textContent);
          button.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(text);
          button.textContent = "Selected";
        }
        setTimeout(() => (button.textContent = "Copy"), 2000);
      });
      wrap.append(text, button);
    }
  };

  const dropping = (root) => {
    for (const input of root.querySelectorAll("input[data-drop]")) {
      const place = document.getElementById(input.dataset.drop);
      place.addEventListener("dragover", (event) => {
        event.preventDefault();
        place.classList.add("over");
      });
      place.addEventListener("dragleave", () => place.classList.remove("over"));
      place.addEventListener("drop", (event) => {
        place.classList.remove("over");
        if (!event.dataTransfer.files.length) return;
        event.preventDefault();
        input.files = event.dataTransfer.files;
        place.value = "";
      });
    }
  };

  // What draws plots is fetched when there is one to draw, and the page was painted.
  const { plots: plotter, plotsSheet } = document.currentScript.dataset;
  let fetched = null;
  const fetchPlotter = () =>
    (fetched ??= new Promise((done) => {
      const begin = () => {
        const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: plotsSheet });
        const script = Object.assign(document.createElement("script"), { src: plotter, onload: done });
        document.head.append(sheet, script);
      };
      requestAnimationFrame(() => setTimeout(begin));
    }));

  // Plots: drawn on a canvas, which knows no stylesheet, so colours are read from the legend and the page.
  const plots = new Map();
  const colour = (selector, fallback) => {
    const item = document.querySelector(selector);
    return item ? getComputedStyle(item).color : fallback;
  };
  const draw = async (place) => {
    const answer = await fetch(place.dataset.plot, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const found = await answer.json();
    const [time, first, second] = Object.values(found);
    place.hidden = time.length < 4;
    place.dataset.drawn = time.length;
    if (place.hidden) return;
    const known = plots.get(place);
    if (known) return known.setData([time, first, second]);
    const names = Object.keys(found).slice(1).map((name) => name.replaceAll("_", " "));
    const ink = getComputedStyle(place).color;
    const line = getComputedStyle(place.closest(".card")).borderTopColor;
    const shared = "shared" in place.dataset;
    const axis = (more) => ({ stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif", ...more });
    const range = (_, low, high) => [0, high > 0 ? high * 1.1 : 1];
    const options = {
      width: place.clientWidth,
      height: 208,
      cursor: { y: false },
      legend: { live: false, show: false },
      scales: { x: { time: true }, y: { range }, z: { range } },
      axes: [axis({ space: 90, values: (_, splits, at, space, step) => splits.map((time) => new Date(time * 1000).toISOString().slice(11, step < 60 ? 19 : 16)) }), axis({ size: 56 }), ...(shared ? [] : [axis({ side: 1, scale: "z", size: 56, grid: { show: false } })])],
      series: [
        {},
        { label: names[0], stroke: colour(".ink-1", ink), width: 2, points: { show: false } },
        { label: names[1], stroke: colour(".ink-2", ink), width: 2, dash: [6, 4], scale: shared ? "y" : "z", points: { show: false } },
      ],
    };
    plots.set(place, new uPlot(options, [time, first, second], place));
    place.querySelector("canvas")?.setAttribute("aria-hidden", "true");
  };
  let drawn = 0;
  const drawAll = (again) => {
    if (again) {
      for (const plot of plots.values()) plot.destroy();
      plots.clear();
    }
    for (const place of plots.keys()) if (!place.isConnected) plots.delete(place);
    const places = document.querySelectorAll("[data-plot]");
    if (!places.length) return;
    drawn = Date.now();
    fetchPlotter().then(() => places.forEach(draw));
  };
  addEventListener("resize", () => {
    for (const [place, plot] of plots) plot.setSize({ width: place.clientWidth, height: 208 });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));

  const ready = (root) => {
    copying(root);
    dropping(root);
    drawAll(false);
  };
  ready(document);

  // What moves came anew: plots follow, at most every two seconds.
  document.addEventListener("htmx:sse:after:message", () => {
    if (Date.now() - drawn > 2000) drawAll(false);
  });
  // The build is in another state than the page shows: the page is fetched again, and what is focused stays focused.
  let turning = false;
  document.addEventListener("turn", async () => {
    if (turning) return;
    turning = true;
    try {
      const focused = document.activeElement?.id;
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("page");
      if (!fresh) return;
      document.title = page.title;
      for (const place of plots.keys()) plots.get(place).destroy();
      plots.clear();
      document.getElementById("page").replaceWith(fresh);
      htmx.process(fresh);
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      ready(fresh);
    } finally {
      turning = false;
    }
  });
})();
