"""Tables that papers print, baselines and published layouts beside ours; the package never imports them."""
