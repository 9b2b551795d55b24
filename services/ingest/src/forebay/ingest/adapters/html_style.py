"""The look of a report: one style sheet, light and dark, on screen and on paper. Nothing is loaded from anywhere."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1c1f23;--soft:#5d6570;--line:#dfe2e6;--track:#eceef1;
--error:#c0362c;--hold:#8a3fa8;--warning:#9a6700;--info:#2167a5;--good:#1d7f47;--curve:42%}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1c2024;--ink:#e7e9ec;--soft:#9aa3ad;--line:#31373d;--track:#272c31;
--error:#ff7a6e;--hold:#d493ee;--warning:#e2b34a;--info:#74b3ec;--good:#5fce8f;--curve:66%}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1040px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:24px;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:18px;margin:40px 0 12px}h3{font-size:15px;margin:0}
p{margin:6px 0}code,.id{font:12.5px/1.4 ui-monospace,SFMono-Regular,Menlo,monospace}
.soft{color:var(--soft)}.verdict{display:flex;gap:16px;align-items:center;flex-wrap:wrap;margin:20px 0 0}
.badge{display:inline-block;padding:1px 9px;border-radius:99px;font-size:12.5px;font-weight:600;border:1px solid currentColor;white-space:nowrap}
.verdict .badge{font-size:18px;padding:5px 16px}
.error,.reject,.truncated{color:var(--error)}.hold{color:var(--hold)}.warning,.incomplete,.empty,.partial{color:var(--warning)}.info{color:var(--info)}
.accept,.accept_with_warning{color:var(--good)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(96px,1fr));gap:1px;background:var(--card);border:1px solid var(--line);border-radius:8px;overflow:hidden;margin:20px 0}
.tile{background:var(--card);padding:10px 14px;box-shadow:0 0 0 1px var(--line)}.tile b{display:block;font-size:20px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:12.5px}
.card{background:var(--card);border:1px solid var(--line);border-left:4px solid currentColor;border-radius:6px;padding:14px 18px;margin:12px 0;break-inside:avoid-page}
.card>*{color:var(--ink)}.card>*.head{display:flex;gap:10px;align-items:baseline;flex-wrap:wrap}
.card .head .badge{align-self:center}.card.error>.head .badge{color:var(--error)}.card.hold>.head .badge{color:var(--hold)}
.card.warning>.head .badge{color:var(--warning)}.card.info>.head .badge{color:var(--info)}
.what{margin:10px 0;padding:0;list-style:none}.what li{padding:6px 0;border-top:1px solid var(--line);overflow-wrap:anywhere}
.what small{display:block;color:var(--soft)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 14px;margin:8px 0 0}dt{color:var(--soft)}dd{margin:0}
.strip{display:flex;gap:10px;flex-wrap:wrap;margin:10px 0 2px}figure{margin:0;width:132px}
figure img{display:block;width:100%;border-radius:4px;border:1px solid var(--line);background:var(--track);image-rendering:auto}
figcaption{font-size:11.5px;line-height:1.35;color:var(--soft);overflow-wrap:anywhere}
.plot{display:block;width:100%;max-width:760px;height:auto;margin:6px 0 2px}.plot text{font:11px system-ui,sans-serif;fill:var(--soft)}
.plot .c{fill:none;stroke:hsl(var(--h) 62% var(--curve));stroke-width:1.2;vector-effect:non-scaling-stroke}
.plot .a{stroke:var(--line)}.plot line.bad{stroke:var(--error);stroke-width:1.4}.plot path.bad{fill:var(--error)}.plot .badtext{fill:var(--error)}
.plot .film{fill:var(--track);stroke:var(--line)}.plot .w{fill:currentColor;opacity:.72}.plot .in{fill:var(--card);font-weight:600}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(380px,1fr));gap:4px 28px;break-inside:avoid}.pair .trace{margin:8px 0}.pair .plot text{font-size:16px}.trace{margin:14px 0;break-inside:avoid}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;background:var(--card);font-size:14px}
th,td{text-align:left;padding:6px 10px;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
th{color:var(--soft);font-weight:500;font-size:12.5px}td.n,th.n{text-align:right}
footer{margin-top:48px;color:var(--soft);font-size:12.5px}
@media print{:root{--bg:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#bbb;--track:#eee;--error:#a00;--hold:#639;--warning:#850;--info:#036;--good:#063;--curve:38%}
body{font-size:11pt}main{max-width:none;padding:0}h2{break-after:avoid}.card{break-inside:auto}.strip,.trace,tr{break-inside:avoid}*{print-color-adjust:exact}}
"""
