"""The daemon's parts: watching between soaks, the soaks themselves, and what the web server shows of both."""
