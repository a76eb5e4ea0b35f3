"""The servers of a deployment: found or started, connected, and work routed among them.

| module | job |
|---|---|
| engines | opens both engines of a deployment for as long as a session lasts |
| server, embedded | the server that is used or started; engines in processes of this program |
| connecting, remotes | connections to servers of Triton; to engines that are asked by HTTP |
| endpoints | the generator and the verifier of a server, of several |
| replicas | several servers: health, failover, joining and leaving |
| routing | which of them gets which work, as pure decisions |
| drivers | a driver for each server, which all searches share; events of what they report |
| engine_steps | records the engines' steps beside a run |
"""
